"""Blocks of the pages that tests/docs/pages_test.py doesn't run: (page, how its first command begins)."""

# Run by another test: `folder/file::test`, below tests/. By the same words, unless the reason says by which.
ELSEWHERE = {
    ("README.md", "scripts/demo"): "docs/readme_test::test_demo",
    ("README.md", "pip install"): "packaging/wheel_test::test_first_run packaging/deb_test::test_runs_from_a_fresh_root",
    ("docker/README.md", "docker build"): "docs/container_demo_test::test_a_node_is_lost_and_comes_back",  # by buildah and podman
    ("docker/README.md", "docker compose"): "docs/container_demo_test::test_a_node_is_lost_and_comes_back",
    ("docs/CPP.md", "PREFIX/bin/ddprun"): "worker/install_test::test_the_tutorials_project_builds_and_runs",
    ("docs/INSTALL.md", "cp deploy/systemd"): "e2e/deploy_test::test_its_command_serves",  # the unit's command, without systemd
    ("docs/INSTALL.md", "~/.cache/ddprun/py-wheel"): "packaging/wheel_test::test_first_run packaging/deb_test::test_contents",
    ("docs/SCALE.md", "ulimit -n"): "bench/service_load_test::test_bytes_of_an_agent_do_not_grow_with_the_job",  # fewer agents
    ("docs/EXAMPLES.md", "ddprun --nproc"): "worker/examples_test::test_digits_are_recognised",
    ("docs/EXAMPLES.md", "python3 examples"): "worker/examples_test::test_what_python_learned_helps",
    ("docs/STATUS.md", "ddprun top"): "e2e/top_test::test_it_follows_the_ranks_at_80_columns",
    ("docs/tutorials/cpp.md", "cmake -S"): "worker/install_test::test_the_tutorials_project_builds_and_runs",
    ("docs/tutorials/cpp.md", '"$PREFIX/bin/ddprun"'): "worker/install_test::test_the_tutorials_project_builds_and_runs",
    ("docs/tutorials/cpp.md", "cmake --build"): "worker/install_test::test_the_tutorials_project_builds_and_runs",
    ("docs/tutorials/slurm.md", "salloc"): "slurm/steps_test::test_one_task_a_node",  # in a step of a batch job
    ("docs/tutorials/slurm.md", "ddprun slurm --submit"): "slurm/script_test::test_submits_and_survives_a_node",
    ("docs/SLURM.md", "srun"): "slurm/steps_test::test_one_task_a_node slurm/script_test::test_submits_and_survives_a_node",
}

# Run by no test, and why.
UNRUN = {
    ("docs/KUBERNETES.md", "kubectl apply"): "needs a cluster; cluster/kubernetes_test.py runs what its pods run",
    ("docs/tutorials/kubernetes.md", "kubectl apply"): "needs a cluster; cluster/kubernetes_test.py runs what its pods run",
    ("docs/tutorials/kubernetes.md", "kubectl delete"): "needs a cluster; cluster/kubernetes_test.py kills a pod's processes",
}
