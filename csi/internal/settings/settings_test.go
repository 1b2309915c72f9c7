// SPDX-License-Identifier: MIT OR Apache-2.0

// Sizes, capacities, write-back and names.

package settings

import "testing"

func TestSizesAreWholeMiB(t *testing.T) {
	for _, step := range []struct{ required, limit, want int64 }{
		{0, 0, DefaultBytes}, {1, 0, MiB}, {MiB + 1, 0, 2 * MiB}, {0, 5 * MiB, 5 * MiB}, {MostVolume, 0, MostVolume},
		{MostVolume + 1, 0, -1}, {-1, 0, -1}, {2, 1, -1}, {MiB + 1, MiB + 2, -1}, {1 << 62, 1 << 62, -1}, {0, 100, -1},
	} {
		got, err := Bytes(step.required, step.limit)
		if (err != nil) != (step.want == -1) || (err == nil && got != step.want) {
			t.Errorf("%+v: %d, %v", step, got, err)
		}
	}
}

func TestCapacityIsThatOfTheLargestVolumeWhoseCacheFits(t *testing.T) {
	const gi = int64(1) << 30
	share, fixed := Class{CachePercent: 10}, Class{CacheBytes: 4 * gi}
	for _, step := range []struct {
		class      Class
		free, want int64
	}{
		{share, 0, 0}, {share, 10 * gi, 100 * gi}, {share, 1 << 60, MostVolume},
		{fixed, 4*gi - 1, 0}, {fixed, 4 * gi, MostVolume},
	} {
		got := step.class.Largest(step.free)
		if got != step.want {
			t.Errorf("%+v, %d free: %d", step.class, step.free, got)
		}
		if got != 0 && step.class.Cache(got) > step.free {
			t.Errorf("%+v, %d free: the cache of %d does not fit", step.class, step.free, got)
		}
	}
	if got := share.Cache(1); got != LeastCache {
		t.Errorf("%d", got)
	}
}

func TestFlashMayBeDirtyUnlessThePresetIsKnownToBeClean(t *testing.T) {
	for _, step := range []struct {
		preset, policy string
		want           bool
	}{
		{"larder", "", false}, {"sce", "around", false}, {"bcache", "", false}, {"bcache", "write-back", true}, {"prwc", "", true},
		{"face", "", true}, {"face", "bounded", true}, {"face", "ordered", true}, {"face", "through", false}, {"new", "", true},
	} {
		if got := WriteBack(step.preset, step.policy); got != step.want {
			t.Errorf("%+v: %v", step, got)
		}
	}
}

func TestAPolicyThatThePresetLacksIsRefused(t *testing.T) {
	for _, step := range []struct{ preset, policy, want string }{
		{"", "async", ""}, {"prwc", "write-back", ""}, {"face", "bounded", ""}, {"face", "through", ""},
		{"", "full", `parameter policy: got "full", accepted with preset larder: async, around, through`},
		{"face", "write-back", `parameter policy: got "write-back", accepted with preset face: bounded, full, ordered, through`},
		{"prwc", "", `parameter policy: got "", accepted with preset prwc: async, around, through, write-back`},
	} {
		parameters := map[string]string{BackingStorageClass: "san", CacheSize: "1Gi", Policy: step.policy}
		if step.preset != "" {
			parameters[Preset] = step.preset
		}
		_, err := ParseClass(parameters)
		if (err == nil) != (step.want == "") || (err != nil && err.Error() != step.want) {
			t.Errorf("%+v: %v", step, err)
		}
	}
}

func TestNamesOfGroupsAndNodesAreChecked(t *testing.T) {
	for name, want := range map[string]bool{"flash": true, "-x": false, "a/b": false, "..": false, "": false, "vg_1.x": true} {
		if IsGroupName(name) != want {
			t.Errorf("group %q", name)
		}
	}
	for name, want := range map[string]bool{"node-1.example": true, "A": false, "a/b": false, "": false, "-a": false} {
		if IsNodeName(name) != want {
			t.Errorf("node %q", name)
		}
	}
}
