// SPDX-License-Identifier: MIT OR Apache-2.0

// The watches that start a round of the loop.
//
// Invariant: a missed event delays a round by resync at most.

package controller

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"larder.dev/csi/internal/store"
)

// resync is how often each volume is examined although nothing changed.
const resync = time.Minute

// watch calls add with the id of each volume of which the record or a helper pod changed. The objects of the watches are used
// for nothing else: a step reads what it decides on from the API server.
func (c *Controller) watch(ctx context.Context, add func(string)) error {
	records := dynamicinformer.NewFilteredDynamicSharedInformerFactory(c.Store.Dynamic, resync, c.Namespace, nil)
	pods := informers.NewSharedInformerFactoryWithOptions(c.Kubernetes, resync, informers.WithNamespace(c.Namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = store.VolumeLabel }))
	record := records.ForResource(store.VolumeResource).Informer()
	pod := pods.Core().V1().Pods().Informer()
	byName := func(object metav1.Object) string { return object.GetName() }
	byLabel := func(object metav1.Object) string { return object.GetLabels()[store.VolumeLabel] }
	for informer, name := range map[cache.SharedIndexInformer]func(metav1.Object) string{record: byName, pod: byLabel} {
		if _, err := informer.AddEventHandler(handler(add, name)); err != nil {
			return err
		}
	}
	records.Start(ctx.Done())
	pods.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), record.HasSynced, pod.HasSynced) {
		return fmt.Errorf("records and pods cannot be watched: %w", ctx.Err())
	}
	return nil
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
