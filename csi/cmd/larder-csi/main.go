// SPDX-License-Identifier: MIT OR Apache-2.0

// Command larder-csi is the driver of Larder for the Container Storage Interface.
//
// It is one program with three commands: the controller plugin, the node plugin, and the first container of a helper pod.
// docs/kubernetes.md describes how the chart runs them. It ends with the exit codes of larder: 2 for bad usage, 3 for an error.
//
// Why one program: the three share the record of a volume, and must agree about it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"

	"larder.dev/csi/internal/driver"
)

// usage is an error of the command line.
type usage struct{ why string }

func (u usage) Error() string { return u.why }

var commands = map[string]func(context.Context, *flag.FlagSet, []string) error{
	"controller":  controllerPlugin,
	"node":        nodePlugin,
	"device-node": deviceNode,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := run(ctx, os.Args[1:])
	klog.Flush()
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintf(os.Stderr, "larder-csi: %v\n", err)
	if _, bad := err.(usage); bad {
		os.Exit(2)
	}
	os.Exit(3)
}

func run(ctx context.Context, args []string) error {
	if len(args) == 1 && (args[0] == "--version" || args[0] == "--help") {
		fmt.Println("larder-csi", driver.Version)
		if args[0] == "--help" {
			fmt.Println("usage: larder-csi controller|node|device-node; larder-csi COMMAND --help prints the flags of a command")
		}
		return nil
	}
	if len(args) == 0 || commands[args[0]] == nil {
		return usage{"command: missing or unknown; accepted: controller, node, device-node, --version, --help"}
	}
	flags := flag.NewFlagSet("larder-csi "+args[0], flag.ContinueOnError)
	logFlags(flags)
	return commands[args[0]](ctx, flags, args[1:])
}

// logFlags adds those of the log that suit a container, whose log is standard error.
func logFlags(flags *flag.FlagSet) {
	all := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(all)
	flags.Var(all.Lookup("v").Value, "v", "detail of the log; from 4 on it has each request")
}

// parse reads the flags of a command and returns its arguments.
func parse(flags *flag.FlagSet, args []string, most int) ([]string, error) {
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil, err
	} else if err != nil {
		return nil, usage{err.Error()}
	}
	if flags.NArg() != most {
		return nil, usage{fmt.Sprintf("%s: got %d arguments, accepted %d", flags.Name(), flags.NArg(), most)}
	}
	return flags.Args(), nil
}
