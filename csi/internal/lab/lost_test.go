// SPDX-License-Identifier: MIT OR Apache-2.0

// The parts in which a node is lost: a power cut under load (cut, after-cut), and a node that returns after another one was
// granted its volume (lost, taken, returned). Each is a boot.

package lab

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// begun stages and publishes a new volume, and writes version 1.
func (v *volume) begun() error {
	return errorsOf(v.create, func() error { return stageStep.once(v) }, func() error { return publishStep.once(v) },
		func() error { return v.write(1, 1) })
}

// loads starts the load of each volume.
func (l *lab) loads(all []*volume) {
	l.t.Helper()
	for _, v := range all {
		go func() { fmt.Printf("%s: load: %v\n", v, v.load(2)) }()
	}
	for _, v := range all {
		l.must(v.String()+": writes are acknowledged", v.loaded(50))
	}
}

// powerCut ends the machine.
func (l *lab) powerCut() {
	_ = l.report.Sync()
	_ = exec.Command("lab-powerfail").Run()
	l.failed("power cut", errors.New("the machine runs on"))
}

// cut cuts the power under load on staged volumes.
func cut(l *lab) {
	all := l.volumes("cut")
	for _, v := range all {
		l.must(v.String()+": staged, published and written", v.begun())
	}
	l.loads(all)
	l.powerCut()
}

// afterCut is the next boot: the kubelet stages the same volumes again.
func afterCut(l *lab) {
	all := l.named("cut")
	for _, v := range all {
		before, err := v.flash()
		l.quietly("flash", err)
		l.must(v.String()+": after the power cut the node holds it", l.api.holds(v.id, l.node, 1))
		l.must(v.String()+": staged again, twice", stageStep.twice(v))
		l.must(v.String()+": under the same generation", l.api.holds(v.id, l.node, 1))
		after, err := v.flash()
		if err == nil && before != after {
			err = fmt.Errorf("%q, then %q", before, after)
		}
		l.must(v.String()+": on the same flash", err)
		l.must(v.String()+": warm", v.warm(l.logs[v.id+"-"+l.node+".log"]))
		l.must(v.String()+": published again", publishStep.twice(v))
		writes, _, err := v.asAcknowledged(1)
		l.must(fmt.Sprintf("%s: every acknowledged write is there (%d)", v, writes), err)
		l.must(v.String()+": unpublish, unstage, delete", errorsOf(func() error { return unpublishStep.twice(v) },
			func() error { return unstageStep.twice(v) }, func() error { return deleteStep.twice(v) }))
	}
	l.gone(all...)
}

// lost: the first node, with a warm cache, loses its power under load.
func lost(l *lab) {
	all := l.volumes("lost")
	for _, v := range all {
		l.must(v.String()+": staged, published and written", v.begun())
		l.must(v.String()+": read, which makes it warm", v.verify(1, 1, 0))
	}
	l.loads(all)
	l.powerCut()
}

// taken: the first node is declared dead, and the second one is granted its volumes and writes to them.
func taken(l *lab) {
	for _, v := range l.named("lost") {
		l.must(v.String()+": refused while the first node is not declared dead", l.refused(v, "node-a holds the volume"))
	}
	l.must("the first node is not ready", eventually(2*time.Minute, func() error { return l.unready("node-a") }))
	l.must("the first node is declared dead", l.api.outOfService("node-a", true))
	for _, v := range l.named("lost") {
		l.must(v.String()+": the helper pod of the first node is gone, its lease expires, and the volume is free", eventually(3*time.Minute,
			func() error { return l.api.holds(v.id, "", 1) }))
		l.must(v.String()+": staged on the second node", stageStep.twice(v))
		l.must(v.String()+": under the next generation", l.api.holds(v.id, l.node, 2))
		text, _ := l.log(v.id, 0)
		l.must(v.String()+": cold", contains(text, "starts cold"))
		l.must(v.String()+": published", publishStep.twice(v))
		writes, newest, err := v.asAcknowledged(1)
		l.must(fmt.Sprintf("%s: every write that the first node acknowledged is there (%d)", v, writes), err)
		l.must(v.String()+": each page is written", v.write(newest+100000, 1))
		l.must(v.String()+": read back", v.verify(newest+100000, 1, 0))
		l.must(v.String()+": unpublished, and still staged", unpublishStep.once(v))
	}
	// The second node is switched off with its volumes, as it is.
	l.quietly("sync", exec.Command("sync").Run())
}

// returned: the first node returns while the second one holds the volumes, and is granted them later.
func returned(l *lab) {
	all := l.named("lost")
	for _, v := range all {
		l.must(v.String()+": is reported as Fenced", eventually(time.Minute, func() error {
			reasons, err := v.health()
			if err == nil && !strings.Contains(reasons["Fenced"], `node "node-b" holds it under generation 2`) {
				err = fmt.Errorf("reported: %v", reasons)
			}
			return err
		}))
		l.must(v.String()+": is not staged", l.refused(v, "node-b holds the volume"))
		if pod := l.kubelet.of(v.id); pod != nil {
			l.failed("no helper pod runs here", errors.New("one does"))
		}
		l.must(v.String()+": the kubelet unpublishes and unstages it, twice", errorsOf(func() error { return unpublishStep.twice(v) },
			func() error { return unstageStep.twice(v) }))
		l.must(v.String()+": nothing of it is in use here", v.unused())
	}
	l.must("the first node is in service again", l.api.outOfService("node-a", false))
	l.must("the second node is not ready", eventually(2*time.Minute, func() error { return l.unready("node-b") }))
	l.must("the second node is declared dead", l.api.outOfService("node-b", true))
	for _, v := range all {
		l.must(v.String()+": is free", eventually(3*time.Minute, func() error { return l.api.holds(v.id, "", 2) }))
		_, end := l.log(v.id, 0)
		l.must(v.String()+": staged on the first node again", stageStep.twice(v))
		l.must(v.String()+": under the next generation", l.api.holds(v.id, l.node, 3))
		text, _ := l.log(v.id, end)
		l.must(v.String()+": cold: its stale flash is not used", contains(text, "starts cold"))
		l.must(v.String()+": published", publishStep.twice(v))
		newest, err := v.newest(1)
		l.quietly("ledger", err)
		l.must(v.String()+": each page is that of the second node", v.verify(newest+100000, 1, 0))
		l.must(v.String()+": unpublish, unstage, delete", errorsOf(func() error { return unpublishStep.twice(v) },
			func() error { return unstageStep.twice(v) }, func() error { return deleteStep.twice(v) }))
	}
	l.gone(all...)
}

func contains(text, part string) error {
	if !strings.Contains(text, part) {
		return fmt.Errorf("%q is not in: %s", part, text)
	}
	return nil
}

// refused verifies that a stage is refused, because another node holds the volume.
func (l *lab) refused(v *volume, why string) error {
	ctx, cancel := context.WithTimeout(background, bound)
	defer cancel()
	err := v.stage(ctx)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), why) {
		return fmt.Errorf("stage: %v, expected FailedPrecondition with %q", err, why)
	}
	return nil
}

// unready verifies that the control plane takes the node for lost.
func (l *lab) unready(name string) error {
	node, err := l.api.CoreV1().Nodes().Get(background, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == core.NodeReady && condition.Status == core.ConditionTrue {
			return fmt.Errorf("node %s is ready", name)
		}
	}
	return nil
}
