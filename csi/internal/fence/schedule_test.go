// SPDX-License-Identifier: MIT OR Apache-2.0

// The schedules, and the mutants that they must find.

package fence

import (
	"os"
	"strconv"
	"testing"
)

// seeds is the number of schedules; LARDER_CSI_SEEDS sets another.
func seeds(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("LARDER_CSI_SEEDS")
	if text == "" {
		return 2000
	}
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("LARDER_CSI_SEEDS: got %q, accepted a number", text)
	}
	return number
}

const steps = 2000

// search runs schedules until one has a violation.
func search(t *testing.T, rules rules, writeBack, fences bool) (string, map[string]int) {
	t.Helper()
	seen := map[string]int{}
	for seed := range seeds(t) {
		w := newWorld(seed, rules, writeBack, fences)
		violation := w.run(steps)
		for key, count := range w.seen {
			seen[key] += count
		}
		if violation != "" {
			return "seed " + strconv.FormatUint(seed, 10) + ", " + violation, seen
		}
	}
	return "", seen
}

func TestNoScheduleServesStaleFlashOrWritesTheOriginTwice(t *testing.T) {
	for _, writeBack := range []bool{false, true} {
		violation, seen := search(t, sound, writeBack, true)
		if violation != "" {
			t.Errorf("write-back %v: %s", writeBack, violation)
		}
		// The schedules reach what they are for.
		for _, event := range []string{"warm", "cold", "stale flash", "release", "takeover", "declared dead",
			"stopped on a dead node", "conflict"} {
			if seen[event] == 0 {
				t.Errorf("write-back %v: no schedule has the event %q: %v", writeBack, event, seen)
			}
		}
		t.Logf("write-back %v: %v", writeBack, seen)
	}
}

// The negative control of the attachment: lease and generation alone do not stop a node that was paused and resumes.
func TestWithoutTheAttachmentAPausedNodeWritesTheOrigin(t *testing.T) {
	if violation, _ := search(t, sound, false, false); violation == "" {
		t.Fatal("no schedule has a violation without the attachment")
	}
}

// The negative controls of the rules: each mutant lacks one of them.
func TestMutantsOfTheRulesAreFound(t *testing.T) {
	mutants := map[string]struct {
		writeBack bool
		rules     func(rules) rules
	}{
		"judge-ignores-generation": {false, func(r rules) rules {
			r.judge = func(record Record, node string, local int64) (Use, error) {
				if local != 0 {
					return Warm, nil
				}
				return Judge(record, node, local)
			}
			return r
		}},
		"judge-ignores-node": {false, func(r rules) rules {
			r.judge = func(record Record, node string, local int64) (Use, error) {
				if record.Flash != nil && local != 0 && local >= record.Flash.Generation-1 {
					return Warm, nil
				}
				return Judge(record, node, local)
			}
			return r
		}},
		"grant-ignores-holder": {false, func(r rules) rules {
			r.grant = func(record Record, node string) (Record, bool, error) {
				if record.Holder != node {
					record.Holder = ""
				}
				return Grant(record, node)
			}
			return r
		}},
		"grant-keeps-generation": {false, func(r rules) rules {
			r.grant = func(record Record, node string) (Record, bool, error) {
				granted, changed, err := Grant(record, node)
				if changed && record.Generation > 0 {
					granted.Generation = record.Generation
				}
				return granted, changed, err
			}
			return r
		}},
		"grant-ignores-dirty": {true, func(r rules) rules {
			r.grant = func(record Record, node string) (Record, bool, error) {
				if record.Flash != nil {
					flash := *record.Flash
					flash.Dirty = false
					record.Flash = &flash
				}
				return Grant(record, node)
			}
			return r
		}},
		"serve-forgets-dirty": {true, func(r rules) rules {
			r.serve = func(record Record, node string, _ bool) (Record, error) { return Serve(record, node, false) }
			return r
		}},
		"free-before-pod-is-gone": {false, func(r rules) rules {
			r.next = func(record Record, pods Pods, expired bool) Step {
				if record.Phase == Releasing || (expired && record.Phase == Serving) {
					return SetFree
				}
				return Next(record, pods, expired)
			}
			return r
		}},
	}
	for name, mutant := range mutants {
		if violation, _ := search(t, mutant.rules(sound), mutant.writeBack, true); violation == "" {
			t.Errorf("%s: no schedule has a violation", name)
		} else {
			t.Logf("%s: %s", name, violation)
		}
	}
}
