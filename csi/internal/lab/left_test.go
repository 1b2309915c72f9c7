// SPDX-License-Identifier: MIT OR Apache-2.0

// What a volume may leave behind.

package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// output is what a program prints.
func output(program string, args ...string) (string, error) {
	text, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, text)
	}
	return strings.TrimSpace(string(text)), nil
}

// unused verifies that an unstaged volume has no device, mount, socket or process on this node. Its flash stays.
func (v *volume) unused() error {
	return eventually(20*time.Second, func() error { return nothing(v.id) })
}

// nothing verifies that no volume whose id has this prefix is in use on this node.
func nothing(id string) error {
	var left []string
	for _, pattern := range []string{"/dev/ublkb*", "/dev/ublkc*", "/sys/block/nbd*/pid"} {
		if id == "" {
			found, _ := filepath.Glob(pattern)
			left = append(left, found...)
		}
	}
	for _, name := range []string{"*.sock", "volume.json", "*.new"} {
		found, _ := filepath.Glob(filepath.Join(dataDir, "volumes", id+"*", name))
		left = append(left, found...)
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], kubeletDir+"/p") && strings.Contains(fields[4], id) {
			left = append(left, "mount "+fields[4])
		}
	}
	servers, err := processes(func(command []string) bool {
		return len(command) > 1 && command[0] == "larder" && command[1] == "serve"
	})
	if err != nil {
		return err
	}
	if id == "" && len(servers) != 0 {
		left = append(left, fmt.Sprintf("%d servers", len(servers)))
	}
	if len(left) != 0 {
		return fmt.Errorf("left: %s", strings.Join(left, ", "))
	}
	return nil
}

// gone verifies that nothing of the deleted volumes is on this node: no flash, no directory, and no record.
func (l *lab) gone(volumes ...*volume) {
	l.t.Helper()
	l.must("nothing is left of deleted volumes: flash, directories, devices, mounts, sockets, servers, records", eventually(100*time.Second, func() error {
		for _, v := range volumes {
			if _, err := l.api.record(v.id); err == nil {
				return fmt.Errorf("%s: the record exists", v)
			}
		}
		flash, err := output("lvs", "--noheadings", "-o", "lv_name", group)
		if err != nil {
			return err
		}
		if flash != "" {
			return fmt.Errorf("flash: %s", flash)
		}
		if found, _ := filepath.Glob(filepath.Join(dataDir, "volumes", "*")); len(found) != 0 {
			return fmt.Errorf("directories: %v", found)
		}
		return nothing("")
	}))
	for _, v := range volumes {
		l.quietly("the backing volume is released", l.api.unused(v.backing))
	}
}

// blank makes a backing device as a new volume has it: it reads as zeroes.
func (v *volume) blank() error {
	if err := v.l.api.unused(v.backing); err != nil {
		return err
	}
	if _, err := output("blkdiscard", "--zeroout", "/dev/lab/"+v.backing); err != nil {
		return err
	}
	return v.l.api.backing(v.backing, v.bytes, v.id)
}

// flash is the UUID of the volume's logical volume, which another one of the same name does not have.
func (v *volume) flash() (string, error) {
	return output("lvs", "--noheadings", "-o", "lv_uuid,lv_tags", group+"/"+v.id)
}

// complaints are words of the kernel's errors.
var complaints = []string{
	"I/O error", "EXT4-fs error", "EXT4-fs warning", "Corruption", "corrupt", "WARNING:", "BUG:", "Oops", "blocked for more than",
}

// quiet verifies that the kernel has reported no error since the last call.
func quiet() error {
	text, err := output("dmesg", "-c")
	if err != nil {
		return err
	}
	var found []string
	for _, line := range strings.Split(text, "\n") {
		for _, word := range complaints {
			if strings.Contains(line, word) {
				found = append(found, line)
				break
			}
		}
	}
	if len(found) != 0 {
		return fmt.Errorf("the kernel: %s", strings.Join(found, "\n"))
	}
	return nil
}
