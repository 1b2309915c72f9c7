// SPDX-License-Identifier: MIT OR Apache-2.0

// The rules, one by one.

package fence

import (
	"testing"
	"time"
)

func TestANodeIsGrantedAFreeVolumeOnce(t *testing.T) {
	record, changed, err := Grant(Record{Generation: 4}, "a")
	if err != nil || !changed || record.Generation != 5 || record.Holder != "a" || record.Phase != Preparing {
		t.Fatalf("%+v %v %v", record, changed, err)
	}
	again, changed, err := Grant(record, "a")
	if err != nil || changed || again != record {
		t.Fatalf("%+v %v %v", again, changed, err)
	}
	if _, _, err := Grant(record, "b"); err == nil {
		t.Fatal("b was granted a volume that a holds")
	}
}

func TestDirtyFlashKeepsTheVolumeOnItsNode(t *testing.T) {
	record := Record{Generation: 1, Flash: &Flash{Node: "a", Generation: 1, Dirty: true}}
	if _, _, err := Grant(record, "b"); err == nil {
		t.Fatal("b was granted a volume whose newest data is on a")
	}
	record, _, err := Grant(record, "a")
	if err != nil {
		t.Fatal(err)
	}
	for local, want := range map[int64]Use{1: Warm, 2: Warm, 0: ""} {
		use, err := Judge(record, "a", local)
		if use != want || (err == nil) != (want != "") {
			t.Errorf("generation %d: %q, %v", local, use, err)
		}
	}
}

func TestFlashOfAnEarlierGenerationIsStale(t *testing.T) {
	// a served under 1, b under 2, now a again.
	record := Record{Generation: 3, Holder: "a", Phase: Preparing, Flash: &Flash{Node: "b", Generation: 2}}
	if use, err := Judge(record, "a", 1); err != nil || use != Cold {
		t.Fatalf("%q, %v", use, err)
	}
	record.Flash = &Flash{Node: "a", Generation: 2}
	for local, want := range map[int64]Use{0: Cold, 1: Cold, 2: Warm, 3: Warm} {
		if use, err := Judge(record, "a", local); err != nil || use != want {
			t.Errorf("generation %d: %q, %v", local, use, err)
		}
	}
	if _, err := Judge(record, "a", 4); err == nil {
		t.Error("flash of a later generation than the record's was accepted")
	}
	if _, err := Judge(record, "b", 2); err == nil {
		t.Error("flash of a node that does not hold the volume was accepted")
	}
}

func TestAReleaseKeepsDirtyDataRecordedUnlessItWasFlushed(t *testing.T) {
	record := Record{Generation: 1, Holder: "a", Phase: Preparing}
	record, err := Serve(record, "a", true)
	if err != nil || !record.Flash.Dirty {
		t.Fatalf("%+v, %v", record, err)
	}
	unflushed, changed := Release(record, "a", false)
	if !changed || !unflushed.Flash.Dirty || !record.Flash.Dirty {
		t.Fatalf("%+v", unflushed)
	}
	if flushed, _ := Release(record, "a", true); flushed.Flash.Dirty {
		t.Fatalf("%+v", flushed)
	}
	if _, changed := Release(record, "b", true); changed {
		t.Fatal("b released the volume of a")
	}
}

func TestAHelperPodOfADeadNodeIsDeletedOnceTheLeaseHasExpiredAndNoneIsStarted(t *testing.T) {
	serving := Record{Generation: 1, Holder: "a", Phase: Serving}
	for _, test := range []struct {
		pods    Pods
		expired bool
		want    Step
	}{
		{Pods{Current: true}, true, Nothing},
		{Pods{Current: true, Dead: true}, false, Nothing},
		{Pods{Current: true, Dead: true}, true, Stop},
		{Pods{Dead: true}, false, Wait},
		{Pods{Dead: true}, true, SetFree},
		{Pods{Other: 1, Dead: true}, true, Wait},
		{Pods{}, false, Start},
	} {
		if got := Next(serving, test.pods, test.expired); got != test.want {
			t.Errorf("%+v, expired: %v: got %s, want %s", test.pods, test.expired, got, test.want)
		}
	}
}

func TestALeaseExpiresByTheClockOfTheObserver(t *testing.T) {
	now := time.Unix(0, 0)
	observer := Observer{Now: func() time.Time { return now }}
	steps := []struct {
		after   time.Duration
		version string
		expired bool
	}{
		{0, "1", false}, {LeaseDuration - 1, "1", false}, {0, "2", false}, {LeaseDuration, "2", true}, {0, "3", false},
	}
	for n, step := range steps {
		now = now.Add(step.after)
		if got := observer.Expired("v", step.version); got != step.expired {
			t.Errorf("step %d: %v", n, got)
		}
	}
	now = now.Add(LeaseDuration)
	observer.Forget("v")
	if observer.Expired("v", "3") {
		t.Error("a forgotten lease expired at its first sight")
	}
}
