// SPDX-License-Identifier: MIT OR Apache-2.0

// The server of a plugin: limits of requests, their log, and panics.
//
// Invariant: a request is logged without its secrets.

package driver

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
)

// mostMessage is the largest request, in bytes. The specification bounds all fields of a request; the largest are maps of 4 KiB.
const mostMessage = 1 << 20

// Services are those of a plugin; nil: not offered.
type Services struct {
	Identity   csi.IdentityServer
	Controller csi.ControllerServer
	Node       csi.NodeServer
}

// Serve serves the plugin at the socket until the context ends, and then finishes the requests in progress.
func Serve(ctx context.Context, socket string, services Services) error {
	listener, err := Listen(socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(
		grpc.UnaryInterceptor(intercept),
		grpc.MaxRecvMsgSize(mostMessage),
		grpc.MaxConcurrentStreams(64),
		grpc.ConnectionTimeout(10*time.Second),
	)
	csi.RegisterIdentityServer(server, services.Identity)
	if services.Controller != nil {
		csi.RegisterControllerServer(server, services.Controller)
	}
	if services.Node != nil {
		csi.RegisterNodeServer(server, services.Node)
	}
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(30*time.Second, server.Stop)
		defer timer.Stop()
		server.GracefulStop()
	})
	defer stop()
	klog.Infof("serving at %s", socket)
	return server.Serve(listener)
}

// intercept logs a request without its secrets, and turns a panic into an error.
func intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
	began := time.Now()
	defer func() {
		if cause := recover(); cause != nil {
			klog.Errorf("%s: panic: %v", info.FullMethod, cause)
			response, err = nil, status.Errorf(codes.Internal, "%s: the handler panicked", info.FullMethod)
		}
		if err != nil {
			klog.Errorf("%s %s: %v (%v)", info.FullMethod, protosanitizer.StripSecrets(request), err, time.Since(began))
		} else {
			klog.V(4).Infof("%s %s: done (%v)", info.FullMethod, protosanitizer.StripSecrets(request), time.Since(began))
		}
	}()
	return handler(ctx, request)
}
