// SPDX-License-Identifier: MIT OR Apache-2.0

// The objects that the controller makes: the backing claim and the helper pod.
//
// Invariant: their names are functions of the volume and of the generation, so that two controllers make the same ones.

package controller

import (
	"fmt"
	"path/filepath"
	"strconv"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"larder.dev/csi/internal/node"
	"larder.dev/csi/internal/store"
)

// Helper is what all helper pods have in common.
type Helper struct {
	// ServerImage has the program larder, DriverImage the program larder-csi.
	ServerImage, DriverImage string
	PullPolicy               core.PullPolicy
	// Data is the directory of the driver on each node.
	Data string
	// Memory is what the server may need; the sum of the last line of `larder size` and of the binary.
	Memory resource.Quantity
	// ServiceAccount has no rights; its token is not mounted.
	ServiceAccount string
}

// originDevice is where the pod has the block device of the backing claim.
const originDevice = "/dev/larder-origin"

// selectedNode is the annotation by which the scheduler states the node of a claim whose class waits for its consumer.
const selectedNode = "volume.kubernetes.io/selected-node"

// backing is the claim of the origin.
func backing(volume *store.Volume, namespace, node string) *core.PersistentVolumeClaim {
	claim := &core.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: volume.Spec.BackingClaim, Namespace: namespace, Labels: map[string]string{store.VolumeLabel: volume.Name},
		},
		Spec: core.PersistentVolumeClaimSpec{
			AccessModes:      []core.PersistentVolumeAccessMode{core.ReadWriteOncePod},
			VolumeMode:       ptr.To(core.PersistentVolumeBlock),
			StorageClassName: ptr.To(volume.Spec.BackingStorageClass),
			Resources: core.VolumeResourceRequirements{Requests: core.ResourceList{
				core.ResourceStorage: *resource.NewQuantity(volume.Spec.CapacityBytes, resource.BinarySI),
			}},
		},
	}
	if node != "" {
		claim.Annotations = map[string]string{selectedNode: node}
	}
	return claim
}

// PodName is that of the helper pod of a grant.
func PodName(id string, generation int64) string { return fmt.Sprintf("%s-g%d", id, generation) }

// pod is the helper pod of the volume's holder.
//
// Its first container makes a device node of the origin in the volume's directory, because the second one has the /dev of the
// node, in which the devices of ublk appear, and for which container runtimes do not make the device of the claim. The second
// one is privileged: it opens the flash, and with ublk it needs CAP_SYS_ADMIN.
func (h Helper) pod(volume *store.Volume, namespace string) *core.Pod {
	id := volume.Name
	directory := core.VolumeMount{Name: "volume", MountPath: node.HelperDir}
	first := core.Container{
		Name: "origin", Image: h.DriverImage, ImagePullPolicy: h.PullPolicy,
		Args:          []string{"device-node", originDevice, filepath.Join(node.HelperDir, node.OriginFile)},
		VolumeDevices: []core.VolumeDevice{{Name: "origin", DevicePath: originDevice}},
		VolumeMounts:  []core.VolumeMount{directory},
		SecurityContext: &core.SecurityContext{
			RunAsUser: ptr.To(int64(0)), AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
			Capabilities: &core.Capabilities{Drop: []core.Capability{"ALL"}, Add: []core.Capability{"MKNOD"}},
		},
	}
	second := core.Container{
		Name: "server", Image: h.ServerImage, ImagePullPolicy: h.PullPolicy,
		Command:      []string{"larder", "serve", filepath.Join(node.HelperDir, node.ConfigFile)},
		VolumeMounts: []core.VolumeMount{directory, {Name: "dev", MountPath: "/dev"}},
		Resources: core.ResourceRequirements{
			Requests: core.ResourceList{core.ResourceMemory: h.Memory},
			Limits:   core.ResourceList{core.ResourceMemory: h.Memory},
		},
		SecurityContext: &core.SecurityContext{Privileged: ptr.To(true), RunAsUser: ptr.To(int64(0))},
	}
	return &core.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: PodName(id, volume.Status.Generation), Namespace: namespace,
			Labels: map[string]string{
				"app.kubernetes.io/name": "larder-csi", "app.kubernetes.io/component": "helper",
				store.VolumeLabel: id, store.GenerationLabel: strconv.FormatInt(volume.Status.Generation, 10),
			},
		},
		Spec: core.PodSpec{
			InitContainers: []core.Container{first}, Containers: []core.Container{second},
			RestartPolicy:                 core.RestartPolicyAlways,
			ServiceAccountName:            h.ServiceAccount,
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			PriorityClassName:             "system-node-critical",
			TerminationGracePeriodSeconds: ptr.To(int64(60)),
			// By the scheduler and not by nodeName, so that ReadWriteOncePod is enforced.
			Affinity:    on(volume.Status.Holder),
			Tolerations: []core.Toleration{{Operator: core.TolerationOpExists}},
			Volumes: []core.Volume{
				{Name: "origin", VolumeSource: core.VolumeSource{
					PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: volume.Spec.BackingClaim},
				}},
				hostPath("volume", filepath.Join(h.Data, node.VolumesDir, id)),
				hostPath("dev", "/dev"),
			},
		},
	}
}

func on(name string) *core.Affinity {
	term := core.NodeSelectorTerm{MatchFields: []core.NodeSelectorRequirement{{
		Key: "metadata.name", Operator: core.NodeSelectorOpIn, Values: []string{name},
	}}}
	return &core.Affinity{NodeAffinity: &core.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{term}},
	}}
}

func hostPath(name, path string) core.Volume {
	return core.Volume{Name: name, VolumeSource: core.VolumeSource{
		HostPath: &core.HostPathVolumeSource{Path: path, Type: ptr.To(core.HostPathDirectory)},
	}}
}
