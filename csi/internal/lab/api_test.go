// SPDX-License-Identifier: MIT OR Apache-2.0

// The API server: what an administrator and the backing driver make in it.

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"larder.dev/csi/internal/fence"
	"larder.dev/csi/internal/store"
)

// The class of the backing volumes, and the service account of helper pods.
const (
	backingClass  = "san"
	helperAccount = "larder-csi-helper"
)

type api struct {
	kubernetes.Interface
	dynamic dynamic.Interface
	store   store.Client
	config  *rest.Config
}

func connect(l *lab) *api {
	l.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	l.quietly("kubeconfig", err)
	config.QPS, config.Burst, config.Timeout = 100, 200, 20*time.Second
	objects, err := kubernetes.NewForConfig(config)
	l.quietly("client", err)
	records, err := dynamic.NewForConfig(config)
	l.quietly("client", err)
	return &api{Interface: objects, dynamic: records, config: config, store: store.Client{Dynamic: records, Namespace: namespace}}
}

// made accepts an object that exists.
func made(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// prepare makes what the chart and an administrator make, unless it exists.
func (a *api) prepare(l *lab) {
	l.t.Helper()
	ctx, none := background, metav1.CreateOptions{}
	_, err := a.CoreV1().Namespaces().Create(ctx, &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, none)
	l.quietly("namespace", made(err))
	_, err = a.CoreV1().ServiceAccounts(namespace).Create(ctx, &core.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: helperAccount}}, none)
	l.quietly("service account", made(err))
	_, err = a.StorageV1().StorageClasses().Create(ctx, &storage.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: backingClass}, Provisioner: "backing.example",
	}, none)
	l.quietly("storage class", made(err))
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	files, err := filepath.Glob(filepath.Join(l.share, "crds", "*.yaml"))
	l.quietly("definitions of the chart", err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		l.quietly(file, err)
		object := new(unstructured.Unstructured)
		l.quietly(file, yaml.Unmarshal(text, &object.Object))
		_, err = a.dynamic.Resource(definitions).Create(ctx, object, none)
		l.quietly(file, made(err))
	}
	l.quietly("the custom resources are served", eventually(time.Minute, func() error {
		_, volumes := a.store.Volumes(ctx)
		if volumes != nil {
			return volumes
		}
		_, err := a.dynamic.Resource(store.NodeResource).List(ctx, metav1.ListOptions{})
		return err
	}))
}

// register makes the object of a node, unless it exists.
func (a *api) register(node string) error {
	_, err := a.CoreV1().Nodes().Create(background, &core.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	return made(err)
}

// backing makes the PersistentVolume of a backing device for the claim of a volume, unless it exists.
func (a *api) backing(device string, bytes int64, volume string) error {
	_, err := a.CoreV1().PersistentVolumes().Create(background, &core.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: device},
		Spec: core.PersistentVolumeSpec{
			Capacity:         core.ResourceList{core.ResourceStorage: *resource.NewQuantity(bytes, resource.BinarySI)},
			AccessModes:      []core.PersistentVolumeAccessMode{core.ReadWriteOncePod},
			VolumeMode:       ptr.To(core.PersistentVolumeBlock),
			StorageClassName: backingClass, PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimRetain,
			// Kubernetes would bind any PersistentVolume of this size, also that of another volume.
			ClaimRef: &core.ObjectReference{Namespace: namespace, Name: volume},
			PersistentVolumeSource: core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{
				Driver: "backing.example", VolumeHandle: device,
			}},
		},
	}, metav1.CreateOptions{})
	return made(err)
}

// unused removes the PersistentVolume of a backing device whose claim is gone.
func (a *api) unused(device string) error {
	return eventually(time.Minute, func() error {
		volumes := a.CoreV1().PersistentVolumes()
		volume, err := volumes.Get(background, device, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if volume.Status.Phase == core.VolumeBound {
			return fmt.Errorf("PersistentVolume %s is bound", device)
		}
		if err := volumes.Delete(background, device, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return fmt.Errorf("PersistentVolume %s exists", device)
	})
}

// beat is the heartbeat of the kubelet: the node's lease, and its condition Ready.
func (a *api) beat(ctx context.Context, node string, ready bool) error {
	leases := a.CoordinationV1().Leases("kube-node-lease")
	now := metav1.NewMicroTime(time.Now())
	lease, err := leases.Get(ctx, node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = leases.Create(ctx, &coordination.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: node},
			Spec:       coordination.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: ptr.To(int32(40)), RenewTime: &now},
		}, metav1.CreateOptions{})
	case err == nil:
		lease.Spec.RenewTime = &now
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil || !ready {
		return err
	}
	text := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","lastHeartbeatTime":%q}]}}`,
		time.Now().UTC().Format(time.RFC3339))
	_, err = a.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{}, "status")
	return err
}

// outOfService declares the node dead, or takes that back.
func (a *api) outOfService(name string, dead bool) error {
	return eventually(30*time.Second, func() error {
		node, err := a.CoreV1().Nodes().Get(background, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Spec.Taints = nil
		if dead {
			node.Spec.Taints = []core.Taint{{Key: core.TaintNodeOutOfService, Value: "nodeshutdown", Effect: core.TaintEffectNoExecute}}
		}
		_, err = a.CoreV1().Nodes().Update(background, node, metav1.UpdateOptions{})
		return err
	})
}

// record is that of a volume.
func (a *api) record(id string) (fence.Record, error) {
	volume, err := a.store.Volume(background, id)
	if err != nil {
		return fence.Record{}, err
	}
	return volume.Status, nil
}

// holds verifies who holds the volume, under which generation.
func (a *api) holds(id, holder string, generation int64) error {
	got, err := a.record(id)
	if err == nil && (got.Holder != holder || got.Generation != generation) {
		err = fmt.Errorf("holder %q, generation %d; expected %q, %d", got.Holder, got.Generation, holder, generation)
	}
	return err
}
