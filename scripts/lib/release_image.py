"""The image of a release: the last stage of docker/Dockerfile with the programs of build/release, on a Debian that mmdebstrap
makes, so that no registry is asked."""

import os
import shutil

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
STORE = os.path.join(ROOT, "build", "release-image")  # of this image alone; nothing of the user's containers is touched
# As in Docker's debian:12-slim; apt in the image goes by them, too.
LEFT_OUT = [f"--dpkgopt=path-{what}" for what in ("exclude=/usr/share/doc/*", "include=/usr/share/doc/*/copyright",
                                                  "exclude=/usr/share/man/*", "exclude=/usr/share/locale/*")]


def why_not(os_release="/etc/os-release"):
    """Why it can't be made here; "" = it can."""
    with open(os_release, encoding="utf-8") as source:
        if "VERSION_CODENAME=bookworm\n" not in source.read():
            return "its programs come from Debian 12"
    lacking = [name for name in ("buildah", "mmdebstrap") if not shutil.which(name)]
    if lacking:
        return f"{' and '.join(lacking)}: not installed"
    return "" if os.geteuid() == 0 else "buildah needs root for it"


def commands(source, archive, version, commit):
    """What makes `archive`, as `docker load` reads it, in STORE. Params: source: the commit's files."""
    base, programs, name = os.path.join(STORE, "debian.tar"), os.path.join(STORE, "programs"), f"ddprun:{version}"
    # Copied layers work on any file system.
    buildah = ["buildah", "--storage-driver", "vfs", "--root", os.path.join(STORE, "store"),
               "--runroot", os.path.join(STORE, "run")]
    return [["cmake", "--preset", "release"],
            ["cmake", "--build", "--preset", "release", "--target", "ddprun", "digits"],
            [os.path.join(ROOT, "docker", "layout.sh"), os.path.join(programs, "opt", "ddprun")],
            ["mmdebstrap", "--variant=minbase", *LEFT_OUT, "bookworm", base],
            [*buildah, "from", "--name", "base", "scratch"],
            [*buildah, "add", "--quiet", "base", base, "/"],
            [*buildah, "commit", "--quiet", "--rm", "base", "docker.io/library/debian:12-slim"],
            [*buildah, "build", "--isolation", "chroot", "--pull-never", "--build-context", f"builder={programs}", "--label",
             f"org.opencontainers.image.revision={commit}", "-f", os.path.join(source, "docker", "Dockerfile"), "-t", name,
             source],
            [*buildah, "push", "--quiet", name, f"docker-archive:{archive}:{name}"]]
