// SPDX-License-Identifier: MIT OR Apache-2.0

// The node plugin in its container, and traps: a program that the plugin executes can be stopped before it begins, after it has
// ended, or at its Nth write, so that a crash at this place is certain.

package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The directories of the wrappers of programs, and of the traps.
const (
	wrappers = "/run/wrappers"
	traps    = "/run/traps"
)

// trapped are the programs that have a wrapper.
var trapped = []string{
	"lvcreate", "lvchange", "lvremove", "blkdiscard", "mkfs.ext4", "mkfs.xfs", "mount", "umount", "nbd-client", "resize2fs", "xfs_growfs",
}

// wrapper stops where the trap of its name asks for it, and continues when the file `go` of this trap appears.
const wrapper = `#!/bin/sh
name=${0##*/}
trap=` + traps + `/$name
pause() { : >` + traps + `/hit; until [ -e ` + traps + `/go$number ]; do sleep 0.1; done; }
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
when=
if [ -e "$trap" ]; then
	read -r when at number <"$trap"
	rm "$trap"
fi
case $when in
before) pause ;;
after) status=0; $name "$@" || status=$?; pause; exit $status ;;
write) strace -f -o /dev/null -e inject=pwrite64:signal=KILL:when=$at $name "$@"; pause; exit 1 ;;
esac
exec $name "$@"
`

type plugin struct {
	l    *lab
	here *container
}

func newPlugin(l *lab) *plugin {
	l.t.Helper()
	l.quietly("directory of traps", os.MkdirAll(traps, 0o755))
	l.quietly("directory of wrappers", os.MkdirAll(wrappers, 0o755))
	for _, name := range trapped {
		l.quietly(name, os.WriteFile(filepath.Join(wrappers, name), []byte(wrapper), 0o755))
	}
	l.quietly("directory of the plugin", os.MkdirAll(pluginDir, 0o755))
	l.quietly("network of the plugin", network(l))
	return &plugin{l: l}
}

// network makes a network namespace, as that of a pod, from which only the API server can be reached.
func network(l *lab) error {
	script := `ip netns add plugin
ip link add host type veth peer name eth0 netns plugin
ip addr add 10.9.0.1/24 dev host
ip link set host up
ip -n plugin addr add 10.9.0.2/24 dev eth0
ip -n plugin link set eth0 up
ip -n plugin link set lo up`
	if output, err := exec.Command("/bin/sh", "-eu", "-c", script).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	text, err := os.ReadFile(os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	server := strings.TrimPrefix(l.api.config.Host, "https://")
	text = []byte(strings.ReplaceAll(string(text), server, "10.9.0.1:6443"))
	if err := os.WriteFile("/run/plugin.kubeconfig", text, 0o600); err != nil {
		return err
	}
	return forward("tcp", "10.9.0.1:6443", "tcp", server)
}

// forward forwards connections until the process ends.
func forward(network, address, toNetwork, to string) error {
	listener, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer from.Close()
				there, err := net.DialTimeout(toNetwork, to, 10*time.Second)
				if err != nil {
					return
				}
				defer there.Close()
				go func() {
					_, _ = io.Copy(there, from)
					there.Close()
				}()
				_, _ = io.Copy(from, there)
			}()
		}
	}()
	return nil
}

// start starts the plugin as the chart's container: the mounts of the node are shared in both directions.
func (p *plugin) start() error {
	script := `mount --make-private /proc
mount -t proc proc /proc
exec nsenter --net=/run/netns/plugin larder-csi node -v=5 --socket=` + pluginDir + `/csi.sock --volume-group=` + group + ` --kubelet-dir=` + kubeletDir +
		` --data=` + dataDir + ` --node=` + p.l.node + ` --namespace=` + namespace + ` --kubeconfig=/run/plugin.kubeconfig --bound=` + bound.String() + ` --flush-bound=15s`
	path := "PATH=" + wrappers + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	here, err := launch(p.l, "plugin-"+p.l.node+".log", syscall.CLONE_NEWNS|syscall.CLONE_NEWPID|syscall.CLONE_NEWUTS, nil, script, path)
	if err != nil {
		return err
	}
	p.here = here
	return eventually(90*time.Second, func() error {
		select {
		case <-here.ended:
			return &final{fmt.Errorf("the plugin ended: %v; see logs/plugin-%s.log", here.err, p.l.node)}
		default:
			return p.l.calls.probe()
		}
	})
}

// kill kills the plugin (-9). The programs that it executes end with it, as in a container.
func (p *plugin) kill() {
	if p.here != nil {
		p.here.signal(syscall.SIGKILL)
		<-p.here.ended
	}
}

func (p *plugin) again() error {
	p.kill()
	return p.start()
}

// trap is a place in a program.
type trap struct {
	program, when string
	// write is the number of the write at which the program is killed.
	write int
}

// armed counts the traps that were set: each has a file `go` of its own, so that a program that was released and has not
// looked for it is not held up by the next trap.
var armed int

func (t trap) String() string {
	if t.when == "write" {
		return fmt.Sprintf("at write %d of %s", t.write, t.program)
	}
	return t.when + " " + t.program
}

// set arms the trap.
func (t trap) set() error {
	armed++
	if err := os.Remove(filepath.Join(traps, "hit")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(filepath.Join(traps, t.program), fmt.Appendf(nil, "%s %d %d\n", t.when, t.write, armed), 0o644)
}

// hit reports whether a program is in the trap.
func hit() bool {
	_, err := os.Stat(filepath.Join(traps, "hit"))
	return err == nil
}

// release lets the program continue, and disarms the trap, which is the one that was set last.
func (t trap) release() error {
	if err := os.Remove(filepath.Join(traps, t.program)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(filepath.Join(traps, fmt.Sprintf("go%d", armed)), nil, 0o644)
}

// killProgram kills the program that is in the trap.
func (t trap) killProgram() error {
	found, err := processes(func(command []string) bool {
		return len(command) > 1 && command[1] == filepath.Join(wrappers, t.program)
	})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("no process of %s", t.program)
	}
	for _, pid := range found {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
	}
	return nil
}

// processes are those whose command line is as asked.
func processes(is func([]string) bool) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, entry := range entries {
		var pid int
		if _, err := fmt.Sscan(entry.Name(), &pid); err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err == nil && is(strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")) {
			found = append(found, pid)
		}
	}
	return found, nil
}
