// SPDX-License-Identifier: MIT OR Apache-2.0

// The watches: what the API server has of volumes, pods, leases and nodes, as of a moment ago.
//
// Invariants: a missed event delays a round by resync at most. What is seen here starts a round, ends one without a step, and is
// published as capacity; nothing is changed because of it alone.

package controller

import (
	"context"
	"fmt"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"larder.dev/csi/internal/store"
)

// resync is how often each volume is examined although nothing changed.
const resync = time.Minute

// byVolume is the index of pods by the volume of which they are.
const byVolume = "volume"

// Watches of the driver's objects. They are filled while a controller runs.
type Watches struct {
	namespace                             string
	volumes, reports, pods, leases, nodes cache.SharedIndexInformer
	begin                                 func(stop <-chan struct{})
}

// NewWatches returns watches that have not begun.
func NewWatches(records store.Client, objects kubernetes.Interface) *Watches {
	labelled := func(options *metav1.ListOptions) { options.LabelSelector = store.VolumeLabel }
	own := dynamicinformer.NewFilteredDynamicSharedInformerFactory(records.Dynamic, resync, records.Namespace, nil)
	cluster := dynamicinformer.NewDynamicSharedInformerFactory(records.Dynamic, resync)
	others := informers.NewSharedInformerFactoryWithOptions(objects, resync, informers.WithNamespace(records.Namespace),
		informers.WithTweakListOptions(labelled), informers.WithTransform(slim))
	nodes := informers.NewSharedInformerFactoryWithOptions(objects, resync, informers.WithTransform(slim))
	return &Watches{
		namespace: records.Namespace,
		volumes:   own.ForResource(store.VolumeResource).Informer(),
		reports:   cluster.ForResource(store.NodeResource).Informer(),
		pods:      others.Core().V1().Pods().Informer(),
		leases:    others.Coordination().V1().Leases().Informer(),
		nodes:     nodes.Core().V1().Nodes().Informer(),
		begin: func(stop <-chan struct{}) {
			own.Start(stop)
			cluster.Start(stop)
			others.Start(stop)
			nodes.Start(stop)
		},
	}
}

// slim keeps of an object what is used here: nodes are large, and there are many.
func slim(object any) (any, error) {
	if node, is := object.(*core.Node); is {
		return &core.Node{
			ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion},
			Spec:       core.NodeSpec{Taints: node.Spec.Taints},
		}, nil
	}
	if other, is := object.(metav1.Object); is {
		other.SetManagedFields(nil)
	}
	return object, nil
}

// start begins the watches and waits until they have seen everything. It calls add with the id of each volume of which the
// record or a helper pod changed.
func (w *Watches) start(ctx context.Context, add func(string)) error {
	byLabel := func(object metav1.Object) string { return object.GetLabels()[store.VolumeLabel] }
	err := w.pods.AddIndexers(cache.Indexers{byVolume: func(object any) ([]string, error) {
		return []string{byLabel(object.(*core.Pod))}, nil
	}})
	if err != nil {
		return err
	}
	if _, err := w.volumes.AddEventHandler(handler(add, metav1.Object.GetName)); err != nil {
		return err
	}
	if _, err := w.pods.AddEventHandler(handler(add, byLabel)); err != nil {
		return err
	}
	w.begin(ctx.Done())
	for _, watch := range []cache.SharedIndexInformer{w.volumes, w.reports, w.pods, w.leases, w.nodes} {
		if !cache.WaitForCacheSync(ctx.Done(), watch.HasSynced) {
			return fmt.Errorf("volumes, reports of nodes, pods, leases and nodes cannot be watched: %w", ctx.Err())
		}
	}
	return nil
}

// sight is what a decision about a volume is made from; false if there is no such volume, or it cannot be read.
func (w *Watches) sight(id string) (sight, bool) {
	key := w.namespace + "/" + id
	object, exists, err := w.volumes.GetIndexer().GetByKey(key)
	if err != nil || !exists {
		return sight{}, false
	}
	volume, err := store.VolumeOf(object.(*unstructured.Unstructured))
	if err != nil {
		return sight{}, false
	}
	pods, err := w.pods.GetIndexer().ByIndex(byVolume, id)
	if err != nil {
		return sight{}, false
	}
	seen := sight{volume: volume}
	for _, pod := range pods {
		seen.pods = append(seen.pods, pod.(*core.Pod))
	}
	object, exists, err = w.leases.GetIndexer().GetByKey(key)
	if err != nil {
		return sight{}, false
	}
	var lease *coordination.Lease
	if exists {
		lease = object.(*coordination.Lease)
	}
	seen.stray, seen.lease = store.IsStray(lease, volume.Status.Holder), store.SeenIn(lease, volume.Status.Holder)
	seen.dead = isDead(w.node(volume.Status.Holder))
	if flash := volume.Status.Flash; flash != nil {
		seen.flashGone = w.node(flash.Node) == nil
	}
	return seen, true
}

// node is nil if there is none of this name.
func (w *Watches) node(name string) *core.Node {
	object, exists, err := w.nodes.GetIndexer().GetByKey(name)
	if err != nil || !exists {
		return nil
	}
	return object.(*core.Node)
}

// reported is what all nodes report; it waits until this is known.
func (w *Watches) reported(ctx context.Context) ([]*store.Node, error) {
	if !cache.WaitForCacheSync(ctx.Done(), w.reports.HasSynced) {
		return nil, fmt.Errorf("the reports of nodes are not read: %w", ctx.Err())
	}
	var all []*store.Node
	for _, object := range w.reports.GetIndexer().List() {
		node, err := store.NodeOf(object.(*unstructured.Unstructured))
		if err != nil {
			return nil, err
		}
		all = append(all, node)
	}
	return all, nil
}

func handler(add func(string), name func(metav1.Object) string) cache.ResourceEventHandlerFuncs {
	changed := func(object any) {
		if tombstone, gone := object.(cache.DeletedFinalStateUnknown); gone {
			object = tombstone.Obj
		}
		if object, is := object.(metav1.Object); is {
			add(name(object))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, object any) { changed(object) },
		DeleteFunc: changed,
	}
}
