// SPDX-License-Identifier: MIT OR Apache-2.0

// Calls for the custom resources.
//
// Invariant: a change needs the resource version that was read.

package store

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
)

// Client reads and changes the custom resources.
type Client struct {
	Dynamic dynamic.Interface
	// Namespace is that of the driver.
	Namespace string
}

func (c Client) volumes() dynamic.ResourceInterface {
	return c.Dynamic.Resource(VolumeResource).Namespace(c.Namespace)
}

func (c Client) nodes() dynamic.ResourceInterface { return c.Dynamic.Resource(NodeResource) }

// Volume reads a volume.
func (c Client) Volume(ctx context.Context, id string) (*Volume, error) {
	got, err := c.volumes().Get(ctx, id, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return VolumeOf(got)
}

// Volumes reads all volumes.
func (c Client) Volumes(ctx context.Context) ([]*Volume, error) {
	list, err := c.volumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := make([]*Volume, 0, len(list.Items))
	for n := range list.Items {
		volume, err := VolumeOf(&list.Items[n])
		if err != nil {
			return nil, err
		}
		all = append(all, volume)
	}
	return all, nil
}

// Create creates the record of a volume.
func (c Client) Create(ctx context.Context, volume *Volume) (*Volume, error) {
	volume.TypeMeta = metav1.TypeMeta{APIVersion: Group + "/" + Version, Kind: "LarderVolume"}
	volume.Namespace = c.Namespace
	object, err := unstructuredOf(volume)
	if err != nil {
		return nil, err
	}
	got, err := c.volumes().Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return VolumeOf(got)
}

// UpdateStatus stores the status. It fails with a conflict if the volume was changed since it was read.
func (c Client) UpdateStatus(ctx context.Context, volume *Volume) (*Volume, error) {
	return c.update(ctx, volume, "status")
}

// Update stores everything except for the status. It fails with a conflict if the volume was changed since it was read.
func (c Client) Update(ctx context.Context, volume *Volume) (*Volume, error) {
	return c.update(ctx, volume)
}

func (c Client) update(ctx context.Context, volume *Volume, subresources ...string) (*Volume, error) {
	object, err := unstructuredOf(volume)
	if err != nil {
		return nil, err
	}
	if object.GetResourceVersion() == "" {
		return nil, fmt.Errorf("volume %s: it has no resource version; a change needs one that was read", volume.Name)
	}
	got, err := c.volumes().Update(ctx, object, metav1.UpdateOptions{}, subresources...)
	if err != nil {
		return nil, err
	}
	return VolumeOf(got)
}

// Delete deletes the record, once its finalizer is removed. It fails with a conflict if the volume was changed since it was read.
func (c Client) Delete(ctx context.Context, volume *Volume) error {
	err := c.volumes().Delete(ctx, volume.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
		UID: &volume.UID, ResourceVersion: &volume.ResourceVersion,
	}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// FlashRemoved removes the finalizer of a deleted volume.
func (c Client) FlashRemoved(ctx context.Context, volume *Volume) error {
	if !volume.HasFinalizer() {
		return nil
	}
	volume.Finalizers = slices.DeleteFunc(slices.Clone(volume.Finalizers), func(name string) bool { return name == FlashFinalizer })
	_, err := c.Update(ctx, volume)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Report stores what a node reports.
func (c Client) Report(ctx context.Context, name string, status NodeStatus) error {
	object, err := c.nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node := &Node{
			TypeMeta:   metav1.TypeMeta{APIVersion: Group + "/" + Version, Kind: "LarderNode"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
		}
		if object, err = unstructuredOf(node); err != nil {
			return err
		}
		object, err = c.nodes().Create(ctx, object, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return err
	}
	object.Object["status"] = fields
	_, err = c.nodes().UpdateStatus(ctx, object, metav1.UpdateOptions{})
	return err
}

// VolumeOf converts what a client or an informer returns.
func VolumeOf(object *unstructured.Unstructured) (*Volume, error) {
	volume := new(Volume)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, volume); err != nil {
		return nil, fmt.Errorf("volume %s: %w", object.GetName(), err)
	}
	return volume, nil
}

// NodeOf converts what an informer returns.
func NodeOf(object *unstructured.Unstructured) (*Node, error) {
	node := new(Node)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, node); err != nil {
		return nil, fmt.Errorf("node %s: %w", object.GetName(), err)
	}
	return node, nil
}

func unstructuredOf(object any) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: fields}, nil
}
