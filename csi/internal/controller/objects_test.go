// SPDX-License-Identifier: MIT OR Apache-2.0

// What the cluster gets: the claim and the pod.

package controller

import (
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"larder.dev/csi/internal/fence"
	"larder.dev/csi/internal/store"
)

func example() *store.Volume {
	return &store.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: "larder-1"},
		Spec:       store.VolumeSpec{BackingClaim: "larder-1", BackingStorageClass: "san", CapacityBytes: 1 << 30},
		Status:     fence.Record{Generation: 7, Holder: "node-a", Phase: fence.Serving},
	}
}

func TestTheBackingClaimIsABlockDeviceOfOnePod(t *testing.T) {
	claim := backing(example(), "larder", "node-a")
	if *claim.Spec.VolumeMode != core.PersistentVolumeBlock || len(claim.Spec.AccessModes) != 1 ||
		claim.Spec.AccessModes[0] != core.ReadWriteOncePod || len(claim.OwnerReferences) != 0 {
		t.Fatalf("%+v", claim)
	}
	if claim.Annotations[selectedNode] != "node-a" || backing(example(), "larder", "").Annotations != nil {
		t.Fatalf("%+v", claim.Annotations)
	}
}

func TestTheHelperPodHoldsTheClaimOnItsNode(t *testing.T) {
	helper := Helper{ServerImage: "s", DriverImage: "d", Data: "/data", Memory: resource.MustParse("1Gi")}
	pod := helper.pod(example(), "larder")
	if pod.Name != "larder-1-g7" || pod.Spec.NodeName != "" {
		t.Fatalf("%s on %q: the scheduler must place it", pod.Name, pod.Spec.NodeName)
	}
	first, second := pod.Spec.InitContainers[0], pod.Spec.Containers[0]
	if len(first.VolumeDevices) != 1 || first.SecurityContext.Privileged != nil || len(first.SecurityContext.Capabilities.Add) != 1 {
		t.Fatalf("%+v", first)
	}
	if len(second.VolumeDevices) != 0 || !*second.SecurityContext.Privileged || *pod.Spec.AutomountServiceAccountToken {
		t.Fatalf("%+v", second)
	}
	if path := pod.Spec.Volumes[1].HostPath.Path; path != "/data/volumes/larder-1" {
		t.Fatal(path)
	}
}
