// SPDX-License-Identifier: MIT OR Apache-2.0

// Containers: processes with namespaces and a root of their own. Their mounts, capabilities and limits are those of the pod.

package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
)

type container struct {
	command *exec.Cmd
	ended   chan struct{}
	err     error
}

// isolated is what all containers have.
const isolated = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS

// launch starts a shell script in a container; its output is appended to the log.
func launch(l *lab, log string, flags uintptr, cgroup *os.File, script string, env ...string) (*container, error) {
	out, err := os.OpenFile(filepath.Join(l.share, "logs", log), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	c := &container{command: exec.Command("/bin/sh", "-eu", "-c", script), ended: make(chan struct{})}
	c.command.Stdout, c.command.Stderr = out, out
	c.command.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, env...)
	c.command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if cgroup != nil {
		c.command.SysProcAttr.UseCgroupFD, c.command.SysProcAttr.CgroupFD = true, int(cgroup.Fd())
	}
	if err := c.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		c.err = c.command.Wait()
		close(c.ended)
	}()
	return c, nil
}

func (c *container) signal(signal syscall.Signal) error { return c.command.Process.Signal(signal) }

// state is how an ended container ended.
func (c *container) state() error { return c.err }

// root makes the root of a container at $r: the programs of the image, and the volume's directory. An unmount on the node reaches
// the container while it starts, as with container runtimes. Otherwise the container keeps a copy of the volume's mount, which is
// unmounted when the container ends, and that unmount waits for the server in the same container.
//
// As the first process of its PID namespace, the shell would ignore a signal that ends a container which starts.
const root = `
trap 'exit 143' TERM
mount --make-rslave /
r=/run/container
mkdir -p $r
mount -t tmpfs -o mode=755 tmpfs $r
mkdir -p $r/usr $r/proc $r/sys $r/dev $r/tmp $r/run/larder
mount --rbind /usr $r/usr
for d in bin sbin lib lib64; do ln -s usr/$d $r/$d; done
mount -t proc proc $r/proc
mount --bind "$VOLUME" $r/run/larder
`

// pivot leaves the mounts of the node, as container runtimes do: a copy of a volume's mount would keep its device in use.
const pivot = `
mkdir $r/old
cd $r
pivot_root . old
umount -l /old
`

// originContainer runs the first container of a helper pod to its end: the device of the claim is in its own /dev, and
// MKNOD is its only capability.
func originContainer(l *lab, pod *core.Pod, directory, device string) error {
	spec := pod.Spec.InitContainers[0]
	script := root + `
mount -t tmpfs -o mode=755 tmpfs $r/dev
device=$(readlink -f "$DEVICE")
mknod $r$NODE b $((0x$(stat -c %t $device))) $((0x$(stat -c %T $device)))
` + pivot + `
mount -o remount,ro /
exec setpriv --bounding-set=-all,+mknod --no-new-privs /usr/local/bin/larder-csi $ARGS
`
	c, err := launch(l, "origin.log", isolated|syscall.CLONE_NEWIPC, nil, script, "VOLUME="+directory, "DEVICE="+device,
		"NODE="+spec.VolumeDevices[0].DevicePath, "ARGS="+strings.Join(spec.Args, " "))
	if err != nil {
		return err
	}
	select {
	case <-c.ended:
		return c.err
	case <-time.After(30 * time.Second):
		_ = c.signal(syscall.SIGKILL)
		return errors.New("did not end within 30 s")
	}
}

// serverContainer starts the server's container: privileged, with the /dev of the node, and the pod's limit of memory.
func serverContainer(l *lab, pod *core.Pod, directory string) (*container, error) {
	spec := pod.Spec.Containers[0]
	memory := spec.Resources.Limits.Memory().Value()
	path := filepath.Join("/sys/fs/cgroup", pod.Name)
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(path, "memory.max"), []byte(fmt.Sprint(memory)), 0o644); err != nil {
		return nil, err
	}
	cgroup, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer cgroup.Close()
	script := root + `
mount --rbind /dev $r/dev
mount --rbind /sys $r/sys
` + pivot + `
exec $COMMAND
`
	id := filepath.Base(directory)
	return launch(l, id+"-"+l.node+".log", isolated|syscall.CLONE_NEWIPC, cgroup, script, "VOLUME="+directory,
		"COMMAND="+strings.Join(spec.Command, " "))
}
