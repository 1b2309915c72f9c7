// SPDX-License-Identifier: MIT OR Apache-2.0

// The measure: the time from NodeStageVolume to a mounted file system, with warm flash. The part fill makes it warm.

package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"larder.dev/csi/internal/node"
)

// goal is what a stage with warm flash may take.
const goal = 5 * time.Second

func (l *lab) large() *volume {
	megabytes, err := strconv.ParseInt(os.Getenv("FLASH_MIB"), 10, 64)
	l.quietly("FLASH_MIB", err)
	v := l.newVolume("measure-"+string(l.kind), "backing0", "ext4", megabytes)
	v.parameters["cacheSize"] = fmt.Sprintf("%dMi", megabytes)
	return v
}

// timed is a stage, and what it takes until the file system is mounted.
func (v *volume) timed() (time.Duration, error) {
	began := time.Now()
	// New flash is zeroed, and the volume is formatted.
	err := stageStep.repeatedly(v, 15*time.Minute)
	took := time.Since(began)
	if err == nil {
		_, err = output("mountpoint", v.staging())
	}
	return took, err
}

func fill(l *lab) {
	v := l.large()
	l.quietly("the backing volume, whose image is new", l.api.backing(v.backing, v.bytes, v.id))
	l.must("create", v.create())
	took, err := v.timed()
	l.must("the first stage, cold", err)
	l.say("# NodeStage to mounted, new flash: %.2f s", took.Seconds())
	began := time.Now()
	// Flash has fewer units than the volume, by the room of its metadata.
	most := fmt.Sprintf("0+%dMiB", v.bytes>>20-1024)
	warm := exec.Command("larder", "warm", most, "--bound", os.Getenv("WARM")+"s", "--control", filepath.Join(dataDir, node.VolumesDir, v.id, node.ControlFile(1)))
	text, err := warm.CombinedOutput()
	// It may have ended by its bound.
	l.say("# larder warm: %v: %s", err, strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "; "))
	used, err := v.unitsUsed()
	if err == nil && used == 0 {
		err = errors.New("no unit is cached")
	}
	l.must("the cache is warm", err)
	l.say("# warm: %d units of 1 MiB, in %.0f s", used, time.Since(began).Seconds())
	again(v, 3)
}

// again stages the volume a number of times, after it was unstaged.
func again(v *volume, rounds int) {
	l := v.l
	for round := range rounds {
		l.quietly("unstage", unstageStep.once(v))
		_, end := l.log(v.id, 0)
		took, err := v.timed()
		l.quietly("stage", err)
		l.must(fmt.Sprintf("round %d is warm", round), v.warm(end))
		used, err := v.unitsUsed()
		l.quietly("units", err)
		l.within(took, used, "after an unstage")
	}
}

func (l *lab) within(took time.Duration, used int64, when string) {
	l.say("# NodeStage to mounted, warm flash with %d units of 1 MiB, %s: %.2f s", used, when, took.Seconds())
	if took > goal {
		l.say("not ok - at most %v", goal)
		l.t.Fail()
		return
	}
	l.say("ok - at most %v", goal)
}

// measure is the boot after fill, whose machine was switched off with the volume staged.
func measure(l *lab) {
	v := l.large()
	took, err := v.timed()
	l.must("the stage after a boot", err)
	l.must("it is warm", v.warm(l.logs[v.id+"-"+l.node+".log"]))
	used, err := v.unitsUsed()
	l.quietly("units", err)
	l.within(took, used, "after a boot")
	again(v, 3)
	l.must("unstage, delete", errorsOf(func() error { return unstageStep.twice(v) }, func() error { return deleteStep.twice(v) }))
	l.gone(v)
}
