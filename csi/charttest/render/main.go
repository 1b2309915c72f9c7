// SPDX-License-Identifier: MIT OR Apache-2.0

// Command render prints the chart as `helm template --include-crds` does. The tests with a control plane install what it prints.
// Usage: render CHART RELEASE NAMESPACE <VALUES
package main

import (
	"fmt"
	"io"
	"os"

	"larder.dev/csi/charttest"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "render: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("got %d arguments, accepted 3: chart, release, namespace", len(args))
	}
	values, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	text, err := charttest.All(args[0], args[1], args[2], string(values))
	if err != nil {
		return err
	}
	_, err = io.WriteString(os.Stdout, text)
	return err
}
