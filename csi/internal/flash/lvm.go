// SPDX-License-Identifier: MIT OR Apache-2.0

// Package flash keeps the flash of volumes as logical volumes of one LVM volume group.
//
// The logical volume has the name of the volume's id. Its generation is an LVM tag, which LVM stores on the physical volumes
// and changes in one commit of its metadata, so that it moves with the flash and is never half written.
//
// Invariants: a logical volume without a generation is of no use: its preparation was interrupted, or it was never in use. It
// gets a generation after it was zeroed, so that no volume reads the data of an earlier one. Only logical volumes whose names
// are ids of volumes are changed.
//
// Why LVM's programs and no library: LVM has no stable library, and its programs print JSON.
package flash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	utilexec "k8s.io/utils/exec"

	"larder.dev/csi/internal/settings"
)

// tag is the prefix of the LVM tag with the generation.
const tag = "larder.generation="

// Time limits: of LVM's programs, and of zeroing a new logical volume.
const (
	Bound     = time.Minute
	ZeroBound = time.Hour
)

// Volume is a logical volume of the group.
type Volume struct {
	ID    string
	Bytes int64
	// Generation is 0 if the preparation did not end.
	Generation int64
}

// Group is a volume group.
type Group struct {
	Name string
	Exec utilexec.Interface
	// Root is empty except in tests, which have a /sys and a /dev of their own there.
	Root string
}

// Path is that of the block device of a volume's flash.
func (g Group) Path(id string) string { return "/dev/" + g.Name + "/" + id }

// Space is the size of the group and what of it is free, in bytes.
func (g Group) Space(ctx context.Context) (size, free int64, err error) {
	var rows []struct {
		Size string `json:"vg_size"`
		Free string `json:"vg_free"`
	}
	if err := g.report(ctx, "vg", &rows, "vgs", "-o", "vg_size,vg_free", g.Name); err != nil {
		return 0, 0, err
	}
	if len(rows) != 1 {
		return 0, 0, fmt.Errorf("volume group %s: vgs printed %d rows, accepted 1", g.Name, len(rows))
	}
	if size, err = strconv.ParseInt(rows[0].Size, 10, 64); err != nil {
		return 0, 0, fmt.Errorf("volume group %s: vg_size: got %q, accepted bytes", g.Name, rows[0].Size)
	}
	if free, err = strconv.ParseInt(rows[0].Free, 10, 64); err != nil {
		return 0, 0, fmt.Errorf("volume group %s: vg_free: got %q, accepted bytes", g.Name, rows[0].Free)
	}
	return size, free, nil
}

// List returns the flash of all volumes.
func (g Group) List(ctx context.Context) ([]Volume, error) {
	var rows []struct {
		Name string `json:"lv_name"`
		Size string `json:"lv_size"`
		Tags string `json:"lv_tags"`
	}
	if err := g.report(ctx, "lv", &rows, "lvs", "-o", "lv_name,lv_size,lv_tags", g.Name); err != nil {
		return nil, err
	}
	var volumes []Volume
	for _, row := range rows {
		if !settings.IsVolumeID(row.Name) {
			continue
		}
		bytes, err := strconv.ParseInt(row.Size, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("logical volume %s/%s: lv_size: got %q, accepted bytes", g.Name, row.Name, row.Size)
		}
		generation, err := generationOf(row.Tags)
		if err != nil {
			return nil, fmt.Errorf("logical volume %s/%s: %w", g.Name, row.Name, err)
		}
		volumes = append(volumes, Volume{ID: row.Name, Bytes: bytes, Generation: generation})
	}
	return volumes, nil
}

// generationOf is the one generation among the tags, 0 if there is none.
func generationOf(tags string) (int64, error) {
	var generation int64
	for _, text := range strings.Split(tags, ",") {
		digits, found := strings.CutPrefix(text, tag)
		if !found {
			continue
		}
		number, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || number <= 0 || generation != 0 {
			return 0, fmt.Errorf("tags: got %q, accepted: one tag %sN, with N from 1", tags, tag)
		}
		generation = number
	}
	return generation, nil
}

// Find returns the flash of a volume, or nil.
func (g Group) Find(ctx context.Context, id string) (*Volume, error) {
	volumes, err := g.List(ctx)
	if err != nil {
		return nil, err
	}
	for n := range volumes {
		if volumes[n].ID == id {
			return &volumes[n], nil
		}
	}
	return nil, nil
}

// Create makes zeroed flash without a generation.
func (g Group) Create(ctx context.Context, id string, bytes int64) error {
	if err := g.named(id); err != nil {
		return err
	}
	size := strconv.FormatInt(bytes, 10) + "b"
	if _, err := g.lvm(ctx, "lvcreate", "--yes", "--wipesignatures", "y", "--zero", "y", "--name", id, "--size", size, g.Name); err != nil {
		return err
	}
	if _, err := g.run(ctx, ZeroBound, "blkdiscard", "--zeroout", g.Path(id)); err != nil {
		return fmt.Errorf("blkdiscard %s: %w", g.Path(id), err)
	}
	return nil
}

// SetGeneration replaces the generation of flash.
func (g Group) SetGeneration(ctx context.Context, id string, generation int64) error {
	if err := g.named(id); err != nil {
		return err
	}
	found, err := g.Find(ctx, id)
	switch {
	case err != nil:
		return err
	case found == nil:
		return fmt.Errorf("logical volume %s/%s: does not exist", g.Name, id)
	case found.Generation == generation:
		return nil
	}
	args := []string{"--addtag", tag + strconv.FormatInt(generation, 10)}
	if found.Generation != 0 {
		args = append(args, "--deltag", tag+strconv.FormatInt(found.Generation, 10))
	}
	_, err = g.lvm(ctx, "lvchange", append(args, g.Name+"/"+id)...)
	return err
}

// Activate makes the block device of flash appear, for example after a reboot of a node that activates no volume itself.
func (g Group) Activate(ctx context.Context, id string) error {
	if err := g.named(id); err != nil {
		return err
	}
	_, err := g.lvm(ctx, "lvchange", "--activate", "y", g.Name+"/"+id)
	return err
}

// Remove removes the flash of a volume, if there is any.
func (g Group) Remove(ctx context.Context, id string) error {
	if err := g.named(id); err != nil {
		return err
	}
	found, err := g.Find(ctx, id)
	if err != nil || found == nil {
		return err
	}
	_, err = g.lvm(ctx, "lvremove", "--yes", g.Name+"/"+id)
	return err
}

func (g Group) named(id string) error {
	if !settings.IsVolumeID(id) {
		return fmt.Errorf("logical volume: got %.64q, accepted: the id of a volume of this driver", id)
	}
	return nil
}

// report reads one table of LVM's JSON.
func (g Group) report(ctx context.Context, table string, rows any, program string, args ...string) error {
	args = append([]string{"--reportformat", "json", "--units", "b", "--nosuffix"}, args...)
	output, err := g.lvm(ctx, program, args...)
	if err != nil {
		return err
	}
	var reports struct {
		Report []map[string]json.RawMessage `json:"report"`
	}
	if err := json.Unmarshal(output, &reports); err != nil || len(reports.Report) != 1 {
		return fmt.Errorf("volume group %s: %s printed no report in JSON", g.Name, program)
	}
	if err := json.Unmarshal(reports.Report[0][table], rows); err != nil {
		return fmt.Errorf("volume group %s: %s: table %q: %w", g.Name, program, table, err)
	}
	return nil
}

// lvm executes a program of LVM.
func (g Group) lvm(ctx context.Context, program string, args ...string) ([]byte, error) {
	output, err := g.run(ctx, Bound, program, append([]string{"--config", g.filter()}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return output, nil
}

// filter keeps LVM from the devices of volumes, and from loop devices over them, which a kubelet makes for raw block volumes. LVM reads
// every block device of a node, and a read of a volume whose server does not run would hold up the programs of all volumes. LVM
// rejects a device if one of its names matches, unless a pattern accepts another name; none does.
func (g Group) filter() string {
	rejected := []string{`"r|^/dev/ublkb|"`, `"r|^/dev/nbd[0-9]|"`}
	loops, _ := filepath.Glob(filepath.Join(g.Root, "/sys/block/loop*/loop/backing_file"))
	for _, loop := range loops {
		file, err := os.ReadFile(loop)
		if err != nil {
			continue // it was removed
		}
		info, err := os.Stat(filepath.Join(g.Root, strings.TrimSpace(string(file))))
		if err == nil && info.Mode()&os.ModeDevice != 0 {
			rejected = append(rejected, `"r|^/dev/`+filepath.Base(filepath.Dir(filepath.Dir(loop)))+`$|"`)
		}
	}
	return "devices/global_filter=[" + strings.Join(rejected, ",") + "]"
}

// run executes a program. The end of the request does not end it: a zeroing that takes longer than a request continues, and the
// request is repeated.
func (g Group) run(ctx context.Context, bound time.Duration, program string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	defer cancel()
	output, err := g.Exec.CommandContext(ctx, program, args...).Output()
	if err == nil {
		return output, nil
	}
	why := err.Error()
	var exit interface{ ExitStatus() int }
	var detail *utilexec.ExitErrorWrapper
	if errors.As(err, &detail) {
		if text := strings.TrimSpace(string(detail.Stderr)); text != "" {
			why = strings.ReplaceAll(text, "\n", "; ")
		}
	} else if errors.As(err, &exit) {
		why = fmt.Sprintf("exit code %d", exit.ExitStatus())
	}
	return nil, errors.New(why)
}
