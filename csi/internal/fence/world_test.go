// SPDX-License-Identifier: MIT OR Apache-2.0

// A world of three nodes, one volume, an API server and a backing driver, in virtual time. It is used by the schedules.
//
// Each party acts in single steps, on what it has read before, so that a node may be paused or partitioned between any two. A
// server that was paused continues with the origin that it has open, as a real one does.

package fence

import (
	"fmt"
	"math/rand/v2"
)

// rules are the functions under test; a mutant replaces one.
type rules struct {
	grant func(Record, string) (Record, bool, error)
	judge func(Record, string, int64) (Use, error)
	serve func(Record, string, bool) (Record, error)
	next  func(Record, Pods, bool) Step
}

var sound = rules{grant: Grant, judge: Judge, serve: Serve, next: Next}

const pages = 3

type server struct {
	generation int64
}

type helper struct {
	node     *machine
	deleting bool
	dead     bool // deleted while its node was dead
}

// machine is a node: its flash survives crashes, the rest does not.
type machine struct {
	name                string
	paused, partitioned bool
	dead                bool // an administrator declared it dead
	mounted             bool // a client uses the volume here
	flash               int64
	cached              [pages]int // 0: not cached
	dirty               [pages]bool
	running             *server
	step                int
	read                Record
	version             int
	use                 Use
	renewed             int
}

type world struct {
	random    *rand.Rand
	rules     rules
	writeBack bool
	fences    bool // whether the backing driver takes the origin from a node that it detaches
	clock     int
	record    Record
	version   int
	nodes     []*machine
	pods      map[int64]*helper
	attached  *machine
	origin    [pages]int
	newest    [pages]int
	started   int64 // the newest generation of which a server was started
	writes    int
	seen      map[string]int
	violation string
}

func newWorld(seed uint64, rules rules, writeBack, fences bool) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 1)), rules: rules, writeBack: writeBack, fences: fences,
		pods: map[int64]*helper{}, seen: map[string]int{}}
	for _, name := range []string{"a", "b", "c"} {
		w.nodes = append(w.nodes, &machine{name: name})
	}
	return w
}

// run takes steps until the first violation.
func (w *world) run(steps int) string {
	for range steps {
		w.clock++
		node := w.nodes[w.random.IntN(len(w.nodes))]
		switch w.random.IntN(12) {
		case 0, 1, 2, 3:
			w.stage(node)
		case 4:
			w.controller()
		case 5, 6:
			w.kubelet(node)
			w.collect()
			w.attach()
		case 7, 8, 9:
			w.client(node)
		case 10:
			w.unstage(node)
		case 11:
			w.disturb(node)
		}
		if w.violation != "" {
			return w.violation
		}
	}
	return ""
}

func (w *world) fail(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf("step %d: ", w.clock) + fmt.Sprintf(format, args...)
	}
}

// swap is the compare-and-swap of the API server.
func (w *world) swap(from int, to Record) bool {
	if from != w.version {
		w.seen["conflict"]++
		return false
	}
	w.record, w.version = to, w.version+1
	return true
}

// stage is one step of NodeStageVolume.
func (w *world) stage(n *machine) {
	if n.paused {
		return
	}
	switch n.step {
	case 0: // read the record and take the volume
		if n.partitioned {
			return
		}
		record, changed, err := w.rules.grant(w.record, n.name)
		if err != nil || record.Phase == Serving {
			n.mounted = n.mounted || (err == nil && n.running != nil && n.running.generation == record.Generation)
			return
		}
		from := w.version
		if changed && !w.swap(from, record) {
			return
		}
		n.read, n.version, n.step = record, w.version, 1
	case 1: // prepare flash
		use, err := w.rules.judge(n.read, n.name, n.flash)
		if err != nil {
			n.step = 0
			w.seen["refused"]++
			return
		}
		if use == Cold {
			if n.flash != 0 {
				w.seen["stale flash"]++
			}
			n.flash, n.cached, n.dirty = 0, [pages]int{}, [pages]bool{}
		}
		w.seen[string(use)]++
		n.step = 2
	case 2:
		n.flash, n.step = n.read.Generation, 3
	case 3: // record that it serves
		if n.partitioned {
			return
		}
		n.step = 0
		if record, err := w.rules.serve(n.read, n.name, w.writeBack); err == nil {
			w.swap(n.version, record)
		}
	}
}

// unstage is NodeUnstageVolume.
func (w *world) unstage(n *machine) {
	if n.paused || n.partitioned || !n.mounted || n.running == nil || n.running.generation != w.record.Generation {
		return
	}
	if w.record.Holder != n.name || w.record.Phase != Serving || w.attached != n {
		return
	}
	n.mounted = false
	for p := range pages {
		if n.dirty[p] {
			w.origin[p], n.dirty[p] = n.cached[p], false
		}
	}
	if record, changed := Release(w.record, n.name, true); changed {
		w.swap(w.version, record)
		w.seen["release"]++
	}
}

// controller is one round of the controller.
func (w *world) controller() {
	var seen Pods
	for generation, pod := range w.pods {
		switch {
		case generation == w.record.Generation && w.record.Phase != Free:
			seen.Current = true
		default:
			pod.deleting = true
			seen.Other++
		}
	}
	holder := w.machine(w.record.Holder)
	expired := holder != nil && w.clock-holder.renewed > 60
	seen.Dead = holder != nil && holder.dead
	switch w.rules.next(w.record, seen, expired) {
	case Start:
		w.pods[w.record.Generation] = &helper{node: holder}
	case Stop:
		if pod := w.pods[w.record.Generation]; pod != nil {
			pod.deleting = true
			if pod.node.dead {
				pod.dead = true
				w.seen["stopped on a dead node"]++
			}
		}
	case SetFree:
		if expired {
			w.seen["takeover"]++
		}
		w.swap(w.version, Released(w.record))
	}
}

func (w *world) machine(name string) *machine {
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// kubelet is one round of the kubelet and of the renewal of the lease.
func (w *world) kubelet(n *machine) {
	if n.paused || n.partitioned {
		return
	}
	if w.record.Holder == n.name {
		n.renewed = w.clock
	}
	if n.running != nil {
		pod := w.pods[n.running.generation]
		if pod != nil && pod.deleting && n.mounted && !pod.dead {
			w.fail("the server of generation %d on node %s was ended under its client", n.running.generation, n.name)
		}
		if pod == nil || pod.node != n || pod.deleting {
			n.running, n.mounted = nil, false
		}
	}
	for generation, pod := range w.pods {
		switch {
		case pod.node != n:
		case pod.deleting:
			delete(w.pods, generation)
		case n.running == nil && w.attached == n: // the server opens its origin exclusively
			n.running = &server{generation: generation}
			w.started = max(w.started, generation)
		}
	}
}

// collect is Kubernetes' removal of pods from dead nodes: of those that are being deleted.
func (w *world) collect() {
	for generation, pod := range w.pods {
		if pod.deleting && pod.node.dead {
			delete(w.pods, generation)
		}
	}
}

// attach is the attach and detach controller, with a backing driver that attaches a volume to one node.
func (w *world) attach() {
	if w.attached != nil {
		for _, pod := range w.pods {
			if pod.node == w.attached {
				return
			}
		}
		w.attached = nil
	}
	for _, pod := range w.pods {
		if !pod.deleting {
			w.attached = pod.node
			return
		}
	}
}

// client sends one request to the server of a node. What a server answers after a later one was started is not compared: its
// clients were declared dead. What it writes to the origin is.
func (w *world) client(n *machine) {
	if n.paused || n.running == nil || !n.mounted {
		return
	}
	superseded := n.running.generation < w.started
	reaches := w.attached == n || !w.fences
	page := w.random.IntN(pages)
	if w.random.IntN(2) == 0 {
		if n.cached[page] == 0 {
			if !reaches {
				return // an error
			}
			n.cached[page] = w.origin[page]
		}
		if got := n.cached[page]; !superseded && got != w.newest[page] {
			w.fail("node %s returned version %d of page %d, the newest is %d", n.name, got, page, w.newest[page])
		}
		return
	}
	w.writes++
	switch {
	case w.writeBack:
		n.cached[page], n.dirty[page] = w.writes, true
	case !reaches:
		return // an error
	default:
		w.origin[page], n.cached[page] = w.writes, w.writes
		if superseded {
			w.fail("node %s wrote the origin under generation %d, after a server of generation %d was started", n.name,
				n.running.generation, w.started)
		}
	}
	if !superseded {
		w.newest[page] = w.writes
	}
}

// disturb pauses, partitions, crashes and repairs nodes, and declares unreachable ones dead.
func (w *world) disturb(n *machine) {
	reached := !n.paused && !n.partitioned
	switch w.random.IntN(6) {
	case 0:
		n.paused = reached
	case 1:
		n.partitioned = reached
	case 2: // a reboot
		n.running, n.mounted, n.step, n.paused = nil, false, 0, false
	case 3, 4: // repaired; an administrator takes the taint back
		n.paused, n.partitioned, n.dead = false, false, false
	case 5: // the taint out-of-service
		if !reached && !n.dead {
			n.dead = true
			w.seen["declared dead"]++
		}
	}
}
