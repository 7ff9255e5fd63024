"""ddprun as users have it: installed, and a project of theirs that is built with it."""

import os
import shutil
import subprocess
import tempfile

BUILD = os.environ["DDPRUN_BUILD_DIR"]


def run_command(*command, **options):
    """Returns the command's output. Errors: AssertionError with the output, if the command fails."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(command)}\n{result.stdout}")
    return result.stdout


def compiler_cache(folder):
    """Variables with which ccache, if it is there, knows what was compiled before in another folder."""
    if shutil.which("ccache") is None:
        return {}
    return {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache", "CCACHE_BASEDIR": folder, "CCACHE_NOHASHDIR": "1",
            "CCACHE_DIR": run_command("ccache", "--get-config", "cache_dir").strip()}


class Installed:
    """An installation in a folder of its own, and what was built with it."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="ddprun-installed-")
        self.prefix = os.path.join(self._folder.name, "prefix")
        self._built = os.path.join(self._folder.name, "build")
        run_command("cmake", "--install", BUILD, "--prefix", self.prefix)

    def build(self, project):
        # In here, as paths of what is compiled are to be alike in each run.
        source = os.path.join(self._folder.name, "project")
        shutil.copytree(project, source)
        environment = {**os.environ, **compiler_cache(self._folder.name)}
        run_command("cmake", "-S", source, "-B", self._built, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                    env=environment)
        run_command("cmake", "--build", self._built, env=environment)

    def program(self, name):
        return os.path.join(self._built, name)

    def refuse_to_compile(self, path):
        """What the compiler says of a file that it refuses."""
        command = run_command("ninja", "-C", self._built, "-t", "commands", "joined_0").split("\n")
        compile_command = next(line for line in command if " -c " in line).split(" -MD ")[0].split()
        result = subprocess.run([*compile_command, "-fsyntax-only", path], capture_output=True, text=True, check=False)
        if result.returncode == 0:
            raise AssertionError(f"{path} compiles")
        return result.stderr

    def close(self):
        self._folder.cleanup()
