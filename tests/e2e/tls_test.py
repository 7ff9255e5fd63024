#!/usr/bin/env python3
"""Jobs whose nodes show each other certificates (--tls_dir), and peers without one or with another CA's."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import hostile  # noqa: E402
from bed import PATIENCE, BedTestCase, free_port  # noqa: E402


class TlsTestCase(BedTestCase):
    def setUp(self):
        super().setUp()
        self.endpoint = f"127.0.0.1:{free_port()}"

    def ddprun(self, *arguments, env=None):
        """A command that ends: (status, its words)."""
        self.asked = getattr(self, "asked", 0) + 1
        process = self.bed.run(f"command{self.asked}", arguments, env=env)
        return process.wait(PATIENCE), process.text()

    def certs(self, name, *options):
        status, text = self.ddprun("certs", *options, self.bed.path(name))
        self.assertEqual(0, status, text)
        return self.bed.path(name)

    def node(self, name, *options, nnodes="2", host=False, worker=("wait",)):
        with self.bed.as_another_user():
            return self.bed.agent(name, ["--nnodes", nnodes, "--rdzv_backend", "c10d", "--rdzv_endpoint", self.endpoint,
                                         "--rdzv_id", "job7", "--rdzv_conf", f"is_host={int(host)},last_call_timeout=0.1",
                                         *options], worker)

    def status(self, *options):
        return self.ddprun("status", "--rdzv_endpoint", self.endpoint, *options)

    def two_nodes(self, *options):
        agents = [self.node("node0", *options, host=True), self.node("node1", *options)]
        workers = self.bed.workers(1, 2, alive=agents)
        return agents, workers

    def end_well(self, agents, workers):
        self.bed.finish(workers)
        for agent in agents:
            self.assert_status(0, agent)


class Jobs(TlsTestCase):
    def test_a_job_and_its_commands(self):
        tls = self.certs("tls")
        agents, workers = self.two_nodes("--tls_dir", tls, "--redirects", "3", "--log_dir", self.bed.path("logs"))
        for command, tells in (("status", "job job7: running"), ("events", "node_joined"), ("logs", "")):
            status, text = self.ddprun(command, "--rdzv_endpoint", self.endpoint, "--tls_dir", tls)
            self.assertEqual(0, status, text)
            self.assertIn(tells, text)
        self.assertEqual(0, self.ddprun("status", "--rdzv_endpoint", self.endpoint, env={"DDPRUN_TLS_DIR": tls})[0])
        self.assertEqual(0, self.ddprun("stop", "--rdzv_endpoint", self.endpoint, "--tls_dir", tls)[0])
        for agent in agents:
            agent.wait(PATIENCE)

    def test_the_service_is_started_again_with_tls(self):
        agents, workers = self.two_nodes("--tls_dir", self.certs("tls"))
        children = subprocess.run(["pgrep", "-P", str(agents[0].pid), "ddprun-service"], capture_output=True, text=True,
                                  check=True)
        os.kill(int(children.stdout), signal.SIGKILL)
        self.bed.event("reconnected", count=2, alive=agents)
        self.assertEqual(1, self.status()[0], "still nobody without a certificate")
        self.end_well(agents, workers)

    def test_without_a_certificate_nothing_is_told(self):
        tls = self.certs("tls")
        agents, workers = self.two_nodes("--tls_dir", tls)
        for options, says in (((), "speaks TLS only"), (("--tls_dir", self.certs("other")), "not one of this cluster")):
            for command in ("status", "events", "stop"):
                status, text = self.ddprun(command, "--rdzv_endpoint", self.endpoint, *options)
                self.assertEqual(1, status)
                self.assertIn(says, text)
                self.assertNotIn("job7", text)
            stranger = self.node(f"stranger{len(options)}", *options)
            self.assert_status(1, stranger)
            self.assertIn(says, stranger.text())
        self.end_well(agents, workers)

    def test_one_whose_certificate_the_service_does_not_know(self):
        """The client knows the service's CA, but the service doesn't know the client's."""
        tls = self.certs("tls")
        agents, workers = self.two_nodes("--tls_dir", tls)
        other = self.certs("other")
        self.append(os.path.join(other, "ca.crt"), os.path.join(tls, "ca.crt"))
        status, text = self.status("--tls_dir", other)
        self.assertEqual(1, status)
        self.assertIn("does it want a certificate (--tls_dir), or another one", text)
        self.end_well(agents, workers)

    def append(self, path, other):
        with open(other, encoding="utf-8") as source:
            text = source.read()
        with open(path, "a", encoding="utf-8") as sink:
            sink.write(text)

    def test_twin_without_tls(self):
        agents, workers = self.two_nodes()
        self.assertIn("job job7: running", self.status()[1])
        status, text = self.status("--tls_dir", self.certs("tls"))
        self.assertEqual(1, status)
        self.assertIn("answers without TLS", text)
        self.end_well(agents, workers)

    def test_certificates_are_read_again(self):
        """From one CA to another under a running job: a client that knows only the new one is let in, without a restart."""
        tls = self.certs("tls")
        agents = [self.node("node0", "--tls_dir", tls, nnodes="1:2", host=True)]
        first = self.bed.workers(1, 1, alive=agents)
        new = self.certs("new")
        self.assertEqual(1, self.status("--tls_dir", new)[0])
        self.append(os.path.join(tls, "ca.crt"), os.path.join(new, "ca.crt"))
        for name in ("node.key", "node.crt"):
            shutil.copy(os.path.join(new, name), os.path.join(tls, name + ".new"))
            os.rename(os.path.join(tls, name + ".new"), os.path.join(tls, name))
        for _ in range(1000):  # each one a whole process: until the files were looked at
            if self.status("--tls_dir", new)[0] == 0:
                break
        agents.append(self.node("node1", "--tls_dir", new, nnodes="1:2"))
        workers = self.bed.next_workers(1, 2, 2, alive=agents)
        self.assertEqual([0, 0], [line["restart_count"] for line in workers])
        self.assertEqual(1, first[0]["generation"])
        self.end_well(agents, workers)


    def test_their_owner_needs_none_on_the_services_machine(self):
        """The command finds the sockets of its own user's agents, and asks there."""
        agents, workers = self.two_nodes("--tls_dir", self.certs("tls"), "--token", "geheim")
        for command, says in (("status", "job job7: running"), ("events", "node_joined")):
            with self.bed.as_another_user():
                status, text = self.ddprun(command, "--rdzv_endpoint", self.endpoint)
            self.assertEqual(0, status, text)
            self.assertIn(says, text)
        self.end_well(agents, workers)


class Doors(TlsTestCase):
    def test_an_agents_store_wants_a_certificate_too(self):
        tls = self.certs("tls")
        agents, workers = self.two_nodes("--tls_dir", tls, "--log_dir", self.bed.path("logs"), "--redirects", "3")
        listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout.splitlines()
        ports = {line.split()[3].rsplit(":", 1)[1] for line in listening if any(f"pid={agent.pid}," in line for agent in agents)}
        self.assertGreaterEqual(len(ports), 2)
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        trusting.set_alpn_protocols(["h2"])
        closed = 0
        for port in ports:
            with socket.create_connection(("127.0.0.1", int(port)), 5) as connection:
                try:
                    with trusting.wrap_socket(connection) as stream:
                        closed += stream.recv(100) == b""
                except (ssl.SSLError, OSError):
                    closed += 1  # also the Python store's port, which speaks no TLS
        self.assertEqual(len(ports), closed)
        self.end_well(agents, workers)


    def test_a_certificate_of_the_ca_that_names_no_member_is_none(self):
        """A CA may sign for others, too."""
        tls = self.certs("tls")
        service = self.bed.run("service", ["rendezvous", "--listen", self.endpoint, "--tls_dir", tls])
        self.bed.wait(lambda: "Ctrl-C" in service.text(), "the service", alive=[service])
        host, port = self.endpoint.split(":")
        question = hostile.call(hostile.RENDEZVOUS + "GetStatus", b"")
        answer = hostile.converse((host, int(port)), question, hostile.tls(tls))
        self.assertIn(b"application/grpc", answer, "negative control: a member's")
        shutil.copytree(tls, self.bed.path("stranger"))
        sign(self.bed, "stranger", 1, "subjectAltName=DNS:printer", "extendedKeyUsage=serverAuth,clientAuth")
        answer = hostile.converse((host, int(port)), question, hostile.tls(self.bed.path("stranger")))
        self.assertNotIn(b"application/grpc", answer)
        service.signal(signal.SIGTERM)
        self.assert_status(0, service)


def sign(bed, folder, days, *extensions):
    """A new node.crt of the CA in that folder."""
    bed.write(f"{folder}/extensions", "\n".join(extensions) + "\n")
    def openssl(*arguments):
        return subprocess.run(["openssl", *arguments], cwd=bed.path(folder), check=False, capture_output=True).returncode == 0

    made = openssl("req", "-new", "-key", "node.key", "-subj", "/CN=x", "-out", "request")
    # OpenSSL 3.4 and later know no negative number of days, but dates.
    past = ["-not_before", "20200101000000Z", "-not_after", "20200102000000Z"]
    made = made and any(openssl("x509", "-req", "-in", "request", "-CA", "ca.crt", "-CAkey", "ca.key", *validity,
                                "-extfile", "extensions", "-out", "node.crt")
                        for validity in (["-days", str(days)], past))
    if not made:
        raise AssertionError("openssl made no certificate")


class Files(TlsTestCase):
    """What is wrong with a folder is said before anybody is called."""

    def refused(self, folder, says):
        for command in (["status"], ["rendezvous"], ["--nnodes", "2", "--no_python", "true"]):
            status, text = self.ddprun(*command[:1], "--tls_dir", folder, *command[1:]) if command[0] != "--nnodes" \
                else self.ddprun("--tls_dir", folder, *command)
            self.assertEqual(1, status, text)
            self.assertIn(says, text)

    def test_missing_and_not_fitting(self):
        tls, other = self.certs("tls"), self.certs("other")
        self.refused(self.bed.path("nowhere"), "nowhere/ca.crt': No such file")
        shutil.copy(os.path.join(other, "node.key"), tls)
        self.refused(tls, "node.key is not the key of")
        shutil.copy(os.path.join(other, "node.crt"), tls)
        self.refused(tls, "is not signed by the CA of")
        self.bed.write("tls/node.crt", "nothing")
        self.refused(tls, "node.crt holds no certificate in PEM form")

    def sign(self, days, *extensions):
        sign(self.bed, "tls", days, *extensions)

    def test_expired_and_of_another_kind(self):
        tls = self.certs("tls")
        self.sign(-1, "subjectAltName=DNS:ddprun")
        self.refused(tls, "node.crt has expired: it was valid until 20")
        self.sign(1, "subjectAltName=DNS:other")
        self.refused(tls, "does not name ddprun")
        self.sign(1, "subjectAltName=DNS:ddprun", "extendedKeyUsage=serverAuth")
        self.refused(tls, "may not be used as a server and as a client")
        self.sign(1, "subjectAltName=DNS:ddprun", "extendedKeyUsage=serverAuth,clientAuth")
        os.rename(os.path.join(tls, "node.crt"), os.path.join(tls, "tls.crt"))
        os.rename(os.path.join(tls, "node.key"), os.path.join(tls, "tls.key"))
        self.assertIn("cannot reach", self.status("--tls_dir", tls)[1], "Kubernetes' names do as well")

    def texts(self, folder):
        texts = {}
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding="utf-8") as source:
                texts[name] = source.read()
        return texts

    def test_certs_overwrites_nothing_and_renews(self):
        tls = self.certs("tls")
        for name in ("ca.key", "node.key"):
            self.assertEqual(0o600, os.stat(os.path.join(tls, name)).st_mode & 0o777)
        before = self.texts(tls)
        status, text = self.ddprun("certs", tls)
        self.assertEqual(1, status)
        self.assertIn("is there already", text)
        self.certs("tls", "--renew")
        after = self.texts(tls)
        self.assertEqual({"node.crt", "node.key"}, {name for name in before if before[name] != after[name]})


if __name__ == "__main__":
    unittest.main()
