// SPDX-License-Identifier: MIT OR Apache-2.0

// Package reply has what the answers of both plugins have in common: the codes of errors, and the ids of volumes.
//
// Invariant: an error that has a code keeps it. The kubelet and the sidecars repeat or end a request by its code.
package reply

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"larder.dev/csi/internal/fence"
	"larder.dev/csi/internal/settings"
)

// Invalid is the error of a request with a bad value.
func Invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// Classify gives an error about a volume its code.
func Classify(id string, err error) error {
	if err == nil {
		return nil
	}
	if _, coded := status.FromError(err); coded {
		return err
	}
	var refusal *fence.Refusal
	code := codes.Internal
	switch {
	case errors.As(err, &refusal):
		code = codes.FailedPrecondition
	// The error of client-go's limiter of requests wraps none.
	case errors.Is(err, context.DeadlineExceeded), strings.Contains(err.Error(), "would exceed context deadline"):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case apierrors.IsNotFound(err):
		code = codes.NotFound
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		code = codes.Aborted
	case apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsTooManyRequests(err),
		apierrors.IsServiceUnavailable(err):
		code = codes.Unavailable
	}
	return status.Errorf(code, "volume %s: %v", id, err)
}

// Identify checks the id of a request. An id that this driver does not make is that of no volume.
func Identify(id string) error {
	switch {
	case id == "":
		return Invalid("volume id: missing; accepted: the id of a volume")
	case len(id) > settings.MostName:
		return Invalid("volume id: got %d bytes, accepted: at most %d", len(id), settings.MostName)
	case !settings.IsVolumeID(id):
		return status.Errorf(codes.NotFound, "volume %q: does not exist", id)
	}
	return nil
}
