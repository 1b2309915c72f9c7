// SPDX-License-Identifier: MIT OR Apache-2.0

// Hostile requests: ids, paths, modes, parameters, secrets.

package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"larder.dev/csi/internal/settings"
	"larder.dev/csi/internal/testrig"
)

var deleteOptions = metav1.DeleteOptions{}

func removeAll(path string) error { return os.RemoveAll(path) }

// hostileIDs are no ids of volumes.
var hostileIDs = []string{
	"x", "../../etc", "larder-../../x", "larder-" + strings.Repeat("0", 31) + "/", "larder-" + strings.Repeat("0", 33),
	"larder-" + strings.Repeat("A", 32), "larder-" + strings.Repeat("0", 32) + "\n", "larder-" + strings.Repeat("0", 31) + "\x00",
	strings.Repeat("x", 1<<16), "--help", "larder-" + strings.Repeat("0", 32) + " ",
}

func TestHostileIDsAreThoseOfNoVolume(t *testing.T) {
	cluster := testrig.New(t, "node-a")
	a := cluster.Machines["node-a"]
	before := tree(t, filepath.Dir(a.Kubelet))
	for _, id := range hostileIDs {
		calls := map[string]func() error{
			"stage":     func() error { return stage(a, id) },
			"unstage":   func() error { return unstage(a, id) },
			"publish":   func() error { return publish(a, id, target(a), mountOf(""), false) },
			"unpublish": func() error { return unpublish(a, id, target(a)) },
			"stats": func() error {
				_, err := a.NodeGetVolumeStats(background, &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: target(a)})
				return err
			},
			"health": func() error {
				_, err := a.NodeGetVolumeHealth(background, &csi.NodeGetVolumeHealthRequest{VolumeId: id})
				return err
			},
			"expand": func() error {
				_, err := a.NodeExpandVolume(background, &csi.NodeExpandVolumeRequest{VolumeId: id, VolumePath: target(a)})
				return err
			},
			"controller expand": func() error {
				_, err := cluster.Controller.ControllerExpandVolume(background, &csi.ControllerExpandVolumeRequest{
					VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 1},
				})
				return err
			},
			"validate": func() error {
				_, err := cluster.Controller.ValidateVolumeCapabilities(background, &csi.ValidateVolumeCapabilitiesRequest{
					VolumeId: id, VolumeCapabilities: []*csi.VolumeCapability{mountOf("")},
				})
				return err
			},
		}
		for name, call := range calls {
			if code := status.Code(call()); code != codes.NotFound && code != codes.InvalidArgument {
				t.Errorf("%s of %.40q: %v", name, id, code)
			}
		}
		_, err := cluster.Controller.DeleteVolume(background, &csi.DeleteVolumeRequest{VolumeId: id})
		if code := status.Code(err); code != codes.OK && code != codes.InvalidArgument {
			t.Errorf("delete of %.40q: %v", id, err)
		}
	}
	if after := tree(t, filepath.Dir(a.Kubelet)); after != before {
		t.Errorf("files were made:\n%s", after)
	}
}

func tree(t *testing.T, dir string) string {
	t.Helper()
	var names []string
	must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		names = append(names, path)
		return err
	}))
	return strings.Join(names, "\n")
}

func publish(m *testrig.Machine, id, path string, capability *csi.VolumeCapability, readOnly bool) error {
	_, err := m.NodePublishVolume(background, &csi.NodePublishVolumeRequest{
		VolumeId: id, TargetPath: path, StagingTargetPath: staging(m), VolumeCapability: capability, Readonly: readOnly,
	})
	return err
}

func unpublish(m *testrig.Machine, id, path string) error {
	_, err := m.NodeUnpublishVolume(background, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: path})
	return err
}

func TestHostilePathsAreRefused(t *testing.T) {
	cluster := testrig.New(t, "node-a")
	a := cluster.Machines["node-a"]
	id := create(t, cluster, "db", nil)
	must(t, stage(a, id))
	outside := t.TempDir()
	must(t, os.Symlink(outside, filepath.Join(a.Kubelet, "link")))
	for _, path := range []string{
		"relative", "/etc", a.Kubelet, a.Kubelet + "/../x", a.Kubelet + "/link/x", a.Kubelet + "/link",
		a.Kubelet + "/" + strings.Repeat("x", 300), a.Kubelet + strings.Repeat("/x", 4000), a.Kubelet + "/a\nb",
	} {
		calls := map[string]error{"publish": publish(a, id, path, mountOf(""), false), "unpublish": unpublish(a, id, path)}
		_, calls["stage"] = a.NodeStageVolume(background, &csi.NodeStageVolumeRequest{
			VolumeId: id, StagingTargetPath: path, VolumeCapability: mountOf(""),
		})
		_, calls["unstage"] = a.NodeUnstageVolume(background, &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: path})
		for name, err := range calls {
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s at %.64q: %v", name, path, err)
			}
		}
		_, err := a.NodeGetVolumeStats(background, &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: path})
		if status.Code(err) != codes.NotFound {
			t.Errorf("stats at %.64q: %v", path, err)
		}
	}
	if left, _ := os.ReadDir(outside); len(left) != 0 {
		t.Errorf("outside of the kubelet's directory: %v", left)
	}
}

func TestWrongModesAreRefused(t *testing.T) {
	cluster := testrig.New(t, "node-a")
	a := cluster.Machines["node-a"]
	id := create(t, cluster, "db", nil)
	mode := func(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
		capability := mountOf("ext4")
		capability.AccessMode.Mode = mode
		return capability
	}
	flags := func(flags ...string) *csi.VolumeCapability {
		capability := mountOf("ext4")
		capability.GetMount().MountFlags = flags
		return capability
	}
	for name, capability := range map[string]*csi.VolumeCapability{
		"many nodes write":   mode(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER),
		"many nodes read":    mode(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY),
		"no mode":            mode(csi.VolumeCapability_AccessMode_UNKNOWN),
		"mode out of range":  mode(99),
		"foreign fs":         mountOf("ntfs"),
		"fs with a path":     mountOf("../../bin/sh"),
		"bind":               flags("bind"),
		"remount":            flags("remount"),
		"two in one":         flags("noatime,suid"),
		"option of a helper": flags("x-systemd.requires=x"),
		"option with dash":   flags("-t"),
		"option with space":  flags("noatime -o suid"),
		"huge option":        flags(strings.Repeat("x", 1<<16)),
		"many options":       flags(strings.Split(strings.Repeat("x ", 100), " ")[:99]...),
		"no access type":     {AccessMode: mountOf("").GetAccessMode()},
	} {
		_, err := a.NodeStageVolume(background, &csi.NodeStageVolumeRequest{
			VolumeId: id, StagingTargetPath: staging(a), VolumeCapability: capability,
		})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("stage, %s: %v", name, err)
		}
		_, err = cluster.Controller.CreateVolume(background, &csi.CreateVolumeRequest{
			Name: name, VolumeCapabilities: []*csi.VolumeCapability{capability},
			Parameters: map[string]string{"backingStorageClass": "san", "cacheSize": "1Gi"},
		})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("create, %s: %v", name, err)
		}
	}
}

func TestWrongParametersAreRefused(t *testing.T) {
	cluster := testrig.New(t)
	for name, parameters := range map[string]map[string]string{
		"none":             {},
		"no class":         {"cacheSize": "1Gi"},
		"no size":          {"backingStorageClass": "san"},
		"class with path":  {"backingStorageClass": "../x", "cacheSize": "1Gi"},
		"small cache":      {"backingStorageClass": "san", "cacheSize": "1Mi"},
		"no number":        {"backingStorageClass": "san", "cacheSize": "much"},
		"more than all":    {"backingStorageClass": "san", "cacheSize": "101%"},
		"huge number":      {"backingStorageClass": "san", "cacheSize": strings.Repeat("9", 5000)},
		"unknown preset":   {"backingStorageClass": "san", "cacheSize": "1Gi", "preset": "fast\"\nformat = true"},
		"unknown policy":   {"backingStorageClass": "san", "cacheSize": "1Gi", "policy": "best"},
		"budget with TOML": {"backingStorageClass": "san", "cacheSize": "1Gi", "writeBudget": "any\"\nformat = true"},
		"unknown key":      {"backingStorageClass": "san", "cacheSize": "1Gi", "cachesize": "1Gi"},
	} {
		_, err := cluster.Controller.CreateVolume(background, &csi.CreateVolumeRequest{
			Name: name, Parameters: parameters, VolumeCapabilities: []*csi.VolumeCapability{mountOf("")},
		})
		if status.Code(err) != codes.InvalidArgument || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSecretsReachNoError(t *testing.T) {
	cluster := testrig.New(t, "node-a")
	_, err := cluster.Controller.CreateVolume(background, &csi.CreateVolumeRequest{
		Name: "x", Secrets: map[string]string{"password": "hunter2"}, VolumeCapabilities: []*csi.VolumeCapability{mountOf("")},
	})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Fatal(err)
	}
}

func TestTheIDIsAFunctionOfTheName(t *testing.T) {
	names := []string{"a", "b", "../a", strings.Repeat("x", 128)}
	seen := map[string]bool{}
	for _, name := range names {
		id := settings.VolumeID(name)
		if !settings.IsVolumeID(id) || id != settings.VolumeID(name) || seen[id] {
			t.Errorf("%.20q: %s", name, id)
		}
		seen[id] = true
	}
}

// A class of this driver would claim from itself, and one that does not exist would leave a claim that is never bound.
func TestTheBackingClassIsOneOfAnotherDriver(t *testing.T) {
	cluster := testrig.New(t)
	for class, why := range map[string]string{
		"cached": "the StorageClass cached is one of this driver", "missing": "the StorageClass missing does not exist",
	} {
		_, err := cluster.Controller.CreateVolume(background, &csi.CreateVolumeRequest{
			Name: "db", Parameters: map[string]string{"backingStorageClass": class, "cacheSize": "1Gi"},
			VolumeCapabilities: []*csi.VolumeCapability{mountOf("ext4")},
		})
		wants(t, err, codes.InvalidArgument, why)
	}
	if volumes, err := cluster.Store.Volumes(background); err != nil || len(volumes) != 0 {
		t.Fatalf("%d records are left: %v", len(volumes), err)
	}
}
