// SPDX-License-Identifier: MIT OR Apache-2.0

// LVM's programs are shell scripts here, which record what they are given.

package flash

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	utilexec "k8s.io/utils/exec"

	"larder.dev/csi/internal/settings"
)

// programs puts shell scripts before the programs of the machine. Each logs its arguments.
func programs(t *testing.T, scripts map[string]string) (Group, func() string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	for _, name := range []string{"lvs", "vgs", "lvcreate", "lvchange", "lvremove", "blkdiscard"} {
		text := "#!/bin/sh\necho \"" + name + " $*\" >>" + log + "\n" + scripts[name]
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	return Group{Name: "flash", Exec: utilexec.New()}, func() string {
		text, _ := os.ReadFile(log)
		return string(text)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var id = settings.VolumeID("db")

func table(name, rows string) string {
	return "cat <<'END'\n{\"report\":[{\"" + name + "\":[" + rows + "]}]}\nEND\n"
}

func row(name, tags string) string {
	return "{\"lv_name\":\"" + name + "\",\"lv_size\":\"4194304\",\"lv_tags\":\"" + tags + "\"}"
}

func TestTheGenerationIsATag(t *testing.T) {
	ctx := context.Background()
	group, log := programs(t, map[string]string{"lvs": table("lv", row(id, "other,larder.generation=4")+","+row("root", ""))})
	found, err := group.Find(ctx, id)
	if err != nil || found == nil || found.Generation != 4 || found.Bytes != 4194304 {
		t.Fatalf("%+v, %v", found, err)
	}
	if all, err := group.List(ctx); err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v: logical volumes of other owners are listed", all, err)
	}
	if err := group.SetGeneration(ctx, id, 5); err != nil {
		t.Fatal(err)
	}
	// One command, so that LVM changes both tags in one commit.
	if want := "--addtag larder.generation=5 --deltag larder.generation=4 flash/" + id; !strings.Contains(log(), want) {
		t.Fatalf("got %s, want %s", log(), want)
	}
}

func TestLVMReadsNoDeviceOfAVolume(t *testing.T) {
	ctx := context.Background()
	group, log := programs(t, map[string]string{"lvs": table("lv", row(id, "")), "vgs": table("vg", "{\"vg_size\":\"1\",\"vg_free\":\"1\"}")})
	group.Root = t.TempDir()
	// Over a block device, over a file, and over a file of another mount namespace.
	for loop, file := range map[string]string{"loop0": "/dev/ublkb3", "loop1": "/flash.img", "loop2": "/none"} {
		must(t, os.MkdirAll(filepath.Join(group.Root, "sys/block", loop, "loop"), 0o755))
		must(t, os.WriteFile(filepath.Join(group.Root, "sys/block", loop, "loop/backing_file"), []byte(file+"\n"), 0o644))
	}
	must(t, os.WriteFile(filepath.Join(group.Root, "flash.img"), nil, 0o644))
	must(t, os.Mkdir(filepath.Join(group.Root, "dev"), 0o755))
	must(t, os.Symlink("/dev/null", filepath.Join(group.Root, "dev/ublkb3"))) // a device
	want := `devices/global_filter=["r|^/dev/ublkb|","r|^/dev/nbd[0-9]|","r|^/dev/loop0$|"]`
	_, _, err := group.Space(ctx)
	for _, err := range []error{
		err, group.Create(ctx, id, 1<<30), group.SetGeneration(ctx, id, 1), group.Activate(ctx, id), group.Remove(ctx, id),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	seen := map[string]bool{}
	for line := range strings.Lines(log()) {
		program, args, _ := strings.Cut(line, " ")
		seen[program] = true
		if program != "blkdiscard" && !strings.HasPrefix(args, "--config "+want+" ") {
			t.Errorf("reads all devices: %s", line)
		}
	}
	if len(seen) != 6 {
		t.Errorf("executed: %v", seen)
	}
}

func TestTagsThatContradictEachOtherAreRefused(t *testing.T) {
	for tags, want := range map[string]int64{
		"": 0, "x": 0, "larder.generation=7": 7, "x,larder.generation=7": 7,
		"larder.generation=1,larder.generation=2": -1, "larder.generation=": -1, "larder.generation=-1": -1, "larder.generation=0": -1,
	} {
		got, err := generationOf(tags)
		if (err != nil) != (want == -1) || (err == nil && got != want) {
			t.Errorf("%q: %d, %v", tags, got, err)
		}
	}
}

func TestNewFlashIsZeroedBeforeItHasAGeneration(t *testing.T) {
	group, log := programs(t, map[string]string{"lvs": table("lv", "")})
	if err := group.Create(context.Background(), id, 1<<30); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(log()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "--size 1073741824b flash") || lines[1] != "blkdiscard --zeroout /dev/flash/"+id {
		t.Fatal(lines)
	}
}

func TestOnlyFlashOfVolumesIsChanged(t *testing.T) {
	ctx := context.Background()
	group, log := programs(t, map[string]string{"lvs": table("lv", row("root", ""))})
	for _, name := range []string{"root", "", "--yes", "../x", id + "/x"} {
		for _, err := range []error{
			group.Create(ctx, name, 1), group.Remove(ctx, name), group.SetGeneration(ctx, name, 1), group.Activate(ctx, name),
		} {
			if err == nil {
				t.Errorf("%q: accepted", name)
			}
		}
	}
	if log() != "" {
		t.Errorf("programs were executed: %s", log())
	}
	// Flash that does not exist is removed.
	if err := group.Remove(ctx, id); err != nil || strings.Contains(log(), "lvremove") {
		t.Errorf("%v, %s", err, log())
	}
}

func TestErrorsOfProgramsAreOneLine(t *testing.T) {
	ctx := context.Background()
	group, _ := programs(t, map[string]string{
		"lvs": "echo 'Volume group \"flash\" not found' >&2; echo 'Cannot process' >&2; exit 5\n", "vgs": "echo no JSON\n",
	})
	if _, err := group.List(ctx); err == nil || !strings.Contains(err.Error(), "\"flash\" not found; Cannot process") {
		t.Errorf("got %v", err)
	}
	if _, _, err := group.Space(ctx); err == nil {
		t.Error("output without a report was accepted")
	}
	group, _ = programs(t, map[string]string{"vgs": table("vg", "{\"vg_size\":\"100\",\"vg_free\":\"40\"}")})
	if size, free, err := group.Space(ctx); size != 100 || free != 40 || err != nil {
		t.Errorf("%d, %d, %v", size, free, err)
	}
}
