// SPDX-License-Identifier: MIT OR Apache-2.0

// Programs that a test starts, kills and starts again.

package clustertest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// process is a program with a log. It may be started again after its end.
type process struct {
	name, log string
	args      []string
	env       []string

	mutex sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
}

// start starts the program. It ends with this process: the kernel kills it when the thread that started it ends, so one thread
// starts all of them.
func (p *process) start() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Dir(p.log), log, log
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := onStarter(cmd.Start); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	p.cmd, p.ended = cmd, ended
	return nil
}

// kill ends the program as kill -9 does, and returns after its end.
func (p *process) kill() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
	p.cmd = nil
}

// stop ends the program in the ordinary way, and kills it if it does not end.
func (p *process) stop() {
	p.mutex.Lock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(10 * time.Second):
		}
	}
	p.mutex.Unlock()
	p.kill()
}

// running returns a channel that is closed at the end of the program.
func (p *process) running() <-chan struct{} {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.ended
}

// tail is the end of the log.
func (p *process) tail(lines int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return fmt.Sprintf("--- %s\n%s\n", p.name, bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

var (
	starterOnce sync.Once
	starter     = make(chan func())
)

func onStarter(start func() error) error {
	starterOnce.Do(func() {
		go func() {
			runtime.LockOSThread()
			for call := range starter {
				call()
			}
		}()
	})
	result := make(chan error)
	starter <- func() { result <- start() }
	return <-result
}
