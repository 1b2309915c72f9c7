// SPDX-License-Identifier: MIT OR Apache-2.0

// Traversal, links, huge names and wrong kinds.

package safepath

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func root(t *testing.T) (Root, string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	return root, dir
}

func TestHostilePathsAreRefused(t *testing.T) {
	root, dir := root(t)
	outside := t.TempDir()
	for name, target := range map[string]string{"out": outside, "up": "..", "self": ".", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	hostile := []string{
		"", "relative", "/", dir, dir + "/", dir + "/../x", dir + "/./x", dir + "//x", dir + "x/y", "/etc/passwd",
		dir + "/a\nb", dir + "/a\x00b", dir + "/a\xffb",
		dir + "/" + strings.Repeat("x", 256), dir + strings.Repeat("/x", 3000),
		dir + "/out/x", dir + "/out", dir + "/up/x", dir + "/self/x", dir + "/loop/x", dir + "/self",
	}
	for _, path := range hostile {
		if err := root.Check(path); err == nil {
			t.Errorf("Check(%.64q): accepted", path)
		}
		if err := root.MakeDir(path); err == nil {
			t.Errorf("MakeDir(%.64q): accepted", path)
		}
		if err := root.MakeFile(path); err == nil {
			t.Errorf("MakeFile(%.64q): accepted", path)
		}
	}
	for _, name := range []string{"/out/x", "/up/x"} {
		if err := root.Remove(dir + name); err == nil {
			t.Errorf("Remove(%q): accepted", name)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
		t.Errorf("outside of the root: %v, %v", left, err)
	}
}

func TestFilesAndDirectoriesAreMadeOnceAndRemoved(t *testing.T) {
	root, dir := root(t)
	for range 2 {
		if err := root.MakeDir(dir + "/d"); err != nil {
			t.Fatal(err)
		}
		if err := root.MakeFile(dir + "/d/f"); err != nil {
			t.Fatal(err)
		}
	}
	if err := root.MakeFile(dir + "/d"); err == nil {
		t.Error("a directory was accepted for a block device")
	}
	if err := root.MakeDir(dir + "/d/f"); err == nil {
		t.Error("a file was accepted for a file system")
	}
	if err := root.MakeDir(dir + "/none/d"); err == nil {
		t.Error("a parent that does not exist was accepted")
	}
	if err := root.Check(dir + "/none/d"); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/d/f", "/d/f", "/d", "/d", "/none/x"} {
		if err := root.Remove(dir + path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if exists, err := root.Exists(dir + "/d"); exists || err != nil {
		t.Errorf("%v, %v", exists, err)
	}
}

func TestARootIsAnAbsoluteDirectory(t *testing.T) {
	for _, path := range []string{"", "/", "x", "/x/../y", "/x/"} {
		if _, err := New(path); err == nil {
			t.Errorf("%q: accepted", path)
		}
	}
}
