# SPDX-License-Identifier: MIT OR Apache-2.0
"""The domains of tests/libvirt, as docs/vm.md has them."""

DOMAIN = """<domain type='qemu'>
  <name>{name}</name>
  <memory unit='MiB'>{memory}</memory>
  <vcpu>{processors}</vcpu>
  {backing}
  <os><type arch='x86_64' machine='q35'>hvm</type>{kernel}</os>
  <features><acpi/></features>
  <devices>
    {disks}
    <serial type='file'><source path='{console}' append='on'/></serial>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
    <memballoon model='none'/>
  </devices>
</domain>
"""

SHARED_MEMORY = "<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>"

VHOST_USER = """<disk type='vhostuser' device='disk'>
      <driver name='qemu' type='raw' queues='2'/>
      <source type='unix' path='/run/larder/db.vhost'><reconnect enabled='yes' timeout='1'/></source>
      <target dev='{target}' bus='virtio'/>{boot}
    </disk>"""

NBD = """<disk type='network' device='disk'>
      <driver name='qemu' type='raw' cache='none' discard='unmap' error_policy='stop' rerror_policy='stop'/>
      <source protocol='nbd' name='db'><host transport='unix' socket='/run/larder/db.nbd'/></source>
      <target dev='{target}' bus='virtio'/>
      <serial>db</serial>{boot}
    </disk>"""

FILE = """<disk type='file' device='disk'>
      <driver name='qemu' type='raw'/>
      <source file='{path}'/>
      <target dev='{target}' bus='virtio'/>{boot}
    </disk>"""

# On a seed of NoCloud: makes a file system on the volume, and mounts it.
USER_DATA = """#cloud-config
fs_setup:
  - {device: /dev/disk/by-id/virtio-db, partition: none, filesystem: ext4, label: db, overwrite: false}
mounts:
  - [/dev/disk/by-id/virtio-db, /srv/db, ext4, "defaults,nofail,x-systemd.device-timeout=5min", "0", "2"]
"""
# What the test adds to it.
USER_DATA_CHECK = """runcmd:
  - dd if=/dev/urandom of=/srv/db/try bs=1M count=4 conv=fsync
  - 'echo "load: start, /srv/db is $(findmnt -no FSTYPE /srv/db)" >/dev/ttyS0'
"""

BOOT = "<boot order='1'/>"
KERNEL = "<kernel>{folder}/vmlinuz</kernel><initrd>{folder}/initrd</initrd><cmdline>{line}</cmdline>"


def domain(name, disks, console, shared, kernel="", memory=512, processors=2):
    return DOMAIN.format(name=name, memory=memory, processors=processors, disks="\n    ".join(disks), console=console,
                         kernel=kernel, backing=SHARED_MEMORY if shared else "")
