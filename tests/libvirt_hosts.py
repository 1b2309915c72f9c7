# SPDX-License-Identifier: MIT OR Apache-2.0
"""The hosts of tests/libvirt, with a libvirtd each, the servers of Larder, and the image of the guest."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from steps import eventually, run

HERE = Path(__file__).resolve().parent
LIBVIRT_DIRECTORIES = {"etc": "/etc/libvirt", "run": "/run/libvirt", "lib": "/var/lib/libvirt", "log": "/var/log/libvirt",
                       "cache": "/var/cache/libvirt", "sockets": "/run/larder"}
PACKAGES = "systemd-sysv,udev,dbus,linux-image-cloud-amd64,initramfs-tools,zstd,cloud-init,e2fsprogs,kmod,python3,busybox-static"
MODULES = ["virtio_pci", "virtio_blk"]
# With the word `systemd` in the kernel's command line the guest runs systemd and cloud-init, otherwise only the load.
INITRD = """#!/busybox sh
/busybox mount -t devtmpfs dev /dev
for module in /modules/*; do /busybox insmod $module; done
until [ -b /dev/vda2 ]; do /busybox sleep 0.1; done
/busybox mount -t ext4 /dev/vda2 /system
/busybox mount --move /dev /system/dev
/busybox mount -t proc proc /proc
if /busybox grep -qw systemd /proc/cmdline; then system=yes; fi
/busybox umount /proc
[ ! "$system" ] || exec /busybox switch_root /system /sbin/init
exec /busybox switch_root /system /usr/bin/python3 /usr/local/bin/libvirt_guest.py /var/lib
"""
BOOT_MIB, ROOT_MIB = 96, 900


def first_existing(*paths):
    found = [path for path in paths if os.path.exists(path)]
    return found[0] if found else sys.exit(f"none of these files exists: {' '.join(paths)}; install syslinux-common")


def make_image(image):
    """A disk with a boot loader, and a Debian root with cloud-init and the load."""
    with tempfile.TemporaryDirectory(dir=image.parent) as work:
        work = Path(work)
        root = work / "root"
        run(["mmdebstrap", "--mode=root", "--variant=minbase", "--quiet", '--aptopt=Apt::Install-Recommends "false"',
             "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
             "--dpkgopt=path-exclude=/usr/share/doc/*", f"--include={PACKAGES}", "bookworm", root])
        fill_image(image, work, root)


def make_initrd(initrd, work, root):
    release = next((root / "lib/modules").iterdir())
    needs = {}
    for line in (release / "modules.dep").read_text(encoding="ascii").splitlines():
        path, after = line.split(":")
        needs[Path(path).name.split(".")[0]] = [path, *after.split()]
    tree = work / "initrd"
    for folder in ("dev", "proc", "system", "modules"):
        (tree / folder).mkdir(parents=True)
    shutil.copy(root / "bin/busybox", tree / "busybox")
    (tree / "init").write_text(INITRD, encoding="ascii")
    (tree / "init").chmod(0o755)
    paths = []
    for module in MODULES:
        paths += [path for path in reversed(needs[module]) if path not in paths]
    for number, path in enumerate(paths):
        shutil.copy(release / path, tree / "modules" / f"{number:02}-{Path(path).name}")
    run(["sh", "-c", f"find . | cpio -o -H newc --quiet | gzip -1 >{initrd}"], cwd=tree)


def fill_image(image, work, root):
    shutil.copy(HERE / "libvirt_guest.py", root / "usr/local/bin")
    (root / "etc/fstab").write_text("/dev/vda2 / ext4 rw 0 0\n", encoding="ascii")
    (root / "etc/hostname").write_text("guest\n", encoding="ascii")
    boot, disk, initrd = work / "boot.img", work / "root.img", work / "initrd.gz"
    make_initrd(initrd, work, root)
    (work / "syslinux.cfg").write_text(
        "DEFAULT linux\nLABEL linux\nKERNEL /vmlinuz\nINITRD /initrd\n"
        "APPEND console=ttyS0 mitigations=off quiet\n", encoding="ascii")
    run(["mkfs.vfat", "-C", boot, str(BOOT_MIB << 10)])
    run(["mcopy", "-i", boot, next((root / "boot").glob("vmlinuz-*")), "::vmlinuz"])
    run(["mcopy", "-i", boot, initrd, "::initrd"])
    run(["mcopy", "-i", boot, work / "syslinux.cfg", "::syslinux.cfg"])
    run(["syslinux", "--install", boot])
    run(["mke2fs", "-q", "-t", "ext4", "-d", root, disk, f"{ROOT_MIB}M"])
    made = image.with_suffix(".new")
    with open(made, "wb") as file:
        file.truncate((2 + BOOT_MIB + ROOT_MIB) << 20)
    run(["sfdisk", "-q", made], input=f"1MiB,{BOOT_MIB}MiB,c,*\n{1 + BOOT_MIB}MiB,{ROOT_MIB}MiB,83\n")
    mbr = first_existing("/usr/lib/syslinux/mbr/mbr.bin", "/usr/share/syslinux/mbr.bin")
    run(["dd", f"if={mbr}", f"of={made}", "bs=440", "count=1", "conv=notrunc", "status=none"])
    run(["dd", f"if={boot}", f"of={made}", "bs=1M", "seek=1", "conv=notrunc,sparse", "status=none"])
    run(["dd", f"if={disk}", f"of={made}", "bs=1M", f"seek={1 + BOOT_MIB}", "conv=notrunc,sparse", "status=none"])
    made.rename(image)


class Server:
    """A server of Larder with a flash of its own; its origin may be that of another server."""

    def __init__(self, larder, folder, origin, listen):
        self.larder, self.folder, self.origin, self.process = larder, folder, origin, None
        self.listen, self.mode, self.control = listen, "0660", folder / "control"
        folder.mkdir(exist_ok=True)

    def command(self):
        listen = [word for place in self.listen for word in ("--listen", place)]
        # The group of the sockets is that of QEMU's user, which --listen-mode admits.
        return ["setpriv", "--regid", "kvm", "--clear-groups", self.larder, "serve", "--origin", self.origin,
                "--flash", self.folder / "flash", "--flash-size", "256MiB", "--name", "db", "--state", self.folder,
                "--control", self.control, "--listen-mode", self.mode, *listen]

    def start(self):
        with open(self.folder / "log", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        return eventually(lambda: self.process.poll() is not None or self.ask("status")[0] == 0, 30) \
            and self.process.poll() is None

    def ask(self, *words):
        ended = subprocess.run([self.larder, *words, "--control", self.control], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, check=False)
        return ended.returncode, ended.stdout

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(60)

    def log(self):
        return (self.folder / "log").read_text(errors="replace")


HOST_SCRIPT = """set -e
hostname "$2"
for pair in $3; do mkdir -p "${pair#*:}"; mount --bind "$1/${pair%%:*}" "${pair#*:}"; done
exec libvirtd --config "$1/etc/libvirtd.conf" --pid-file "$1/run/libvirtd.pid"
"""


class Host:
    """A libvirtd with directories, a host name and a UUID of its own, in a mount namespace."""

    def __init__(self, folder, name, number):
        self.folder, self.name, self.log_file = folder, name, folder / "libvirtd.out"
        for directory in LIBVIRT_DIRECTORIES:
            (folder / directory).mkdir(parents=True)
        os.chmod(folder, 0o755)
        etc = folder / "etc"
        (etc / "libvirtd.conf").write_text(
            'auth_unix_rw = "none"\nauth_unix_ro = "none"\nunix_sock_rw_perms = "0700"\n'
            f'host_uuid = "11111111-2222-4333-8444-00000000000{number}"\n', encoding="ascii")
        (etc / "qemu.conf").write_text(
            'security_driver = "none"\ncgroup_controllers = []\nstdio_handler = "file"\nremember_owner = 0\n', encoding="ascii")
        self.sockets = folder / "sockets"
        self.uri = f"qemu+unix:///system?socket={folder}/run/libvirt-sock"
        with open(self.log_file, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "--uts", "--propagation", "private", "bash", "-c", HOST_SCRIPT, "host", folder, name,
                 " ".join(f"{key}:{path}" for key, path in LIBVIRT_DIRECTORIES.items())], stdout=log, stderr=log)

    def ready(self, seconds):
        """Whether libvirtd answers."""
        return eventually(lambda: self.process.poll() is not None or self.virsh("list")[0] == 0, seconds) \
            and self.process.poll() is None

    def log(self):
        return self.log_file.read_text(errors="replace")

    def virsh(self, *words, seconds=180):
        ended = subprocess.run(["timeout", str(seconds), "virsh", "-q", "-c", self.uri, *words], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return ended.returncode, " ".join(ended.stdout.split())

    def clean(self):
        """Ends what this host runs: its virtual machines by their own process files, then libvirtd."""
        for file in (self.folder / "run/qemu").glob("*.pid"):
            try:
                os.kill(int(file.read_text()), signal.SIGKILL)
            except (ProcessLookupError, FileNotFoundError, ValueError):
                pass
        end_process(self.process)


def end_process(process):
    if process and process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Console:
    """Lines of the load on a guest's serial console."""

    def __init__(self, path):
        self.path = path

    def lines(self):
        text = self.path.read_text(errors="replace") if self.path.exists() else ""
        return re.findall(r"load: ([^\r\n]+)", text)

    def starts(self):
        return [line for line in self.lines() if line.startswith("start, ")]

    def tail(self):
        return self.path.read_text(errors="replace")[-1500:] if self.path.exists() else "no console"

    def good(self):
        return sum(line.endswith(" ok") for line in self.lines())

    def bad(self):
        return [line for line in self.lines() if "wrong: " in line or "failed" in line]
