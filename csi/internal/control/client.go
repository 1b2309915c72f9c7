// SPDX-License-Identifier: MIT OR Apache-2.0

// Package control is a client of the JSON control socket of a Larder server.
//
// One connection carries one request: a JSON object in a line. The server answers with any number of progress lines and one
// line with the result or an error. The messages are those of crates/front/src/control/wire.rs.
//
// Invariants: each call ends within its time limit, also if the server accepts the connection and never answers. An answer
// line is at most MostLine bytes long.
//
// Why not execute `larder COMMAND --json`: the node plugin would need the program of the server's version in its image, and
// a process for each question about statistics.
package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// MostLine is the longest line of an answer, in bytes.
const MostLine = 4 << 20

// Quick is the time limit of commands that the server answers at once.
const Quick = 10 * time.Second

// margin is how much longer than the bound of a command the client waits for its answer.
const margin = 5 * time.Second

// Error is an error that the server reported.
type Error struct {
	// Code is the exit code of the same command in the shell.
	Code int `json:"code"`
	// Message is one line.
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Client asks the server that listens at Socket.
type Client struct {
	// Socket is the path of the control socket.
	Socket string
}

// Status is the part of the answer to `status` that the driver uses. Numbers are bytes unless their names state units.
type Status struct {
	State       string  `json:"state"`
	Advice      string  `json:"advice"`
	Alarm       *string `json:"alarm"`
	Name        string  `json:"name"`
	Origin      string  `json:"origin"`
	OriginBytes int64   `json:"origin_bytes"`
	Flash       *string `json:"flash"`
	UnitsUsed   int64   `json:"units_used"`
	UnitsDirty  int64   `json:"units_dirty"`
	PID         int     `json:"pid"`
}

// Stats is the part of the counters that the driver uses.
type Stats struct {
	State      string `json:"state"`
	Reads      uint64 `json:"reads"`
	ReadHits   uint64 `json:"read_hits"`
	Writes     uint64 `json:"writes"`
	UnitsTotal uint64 `json:"units_total"`
	UnitsUsed  uint64 `json:"units_used"`
	UnitsDirty uint64 `json:"units_dirty"`
}

// Status asks for the state of the volume.
func (c Client) Status(ctx context.Context) (Status, error) {
	var status Status
	err := c.ask(ctx, Quick, map[string]any{"command": "status"}, &status)
	return status, err
}

// Stats asks for the counters since the start of the server.
func (c Client) Stats(ctx context.Context) (Stats, error) {
	var stats Stats
	err := c.ask(ctx, Quick, map[string]any{"command": "stats"}, &stats)
	return stats, err
}

// Flush makes all acknowledged writes durable on the origin, dirty data included, within bound.
func (c Client) Flush(ctx context.Context, bound time.Duration) error {
	var done struct {
		Flushed bool `json:"flushed"`
	}
	request := map[string]any{"command": "flush", "bound_seconds": seconds(bound)}
	if err := c.ask(ctx, bound+margin, request, &done); err != nil {
		return err
	}
	if !done.Flushed {
		return fmt.Errorf("%s: the answer to flush lacks \"flushed\": true", c.Socket)
	}
	return nil
}

// Detach takes the flash out of use; the volume continues without a cache.
func (c Client) Detach(ctx context.Context, bound time.Duration) error {
	var done struct {
		Detached bool `json:"detached"`
	}
	request := map[string]any{"command": "detach", "bound_seconds": seconds(bound)}
	if err := c.ask(ctx, bound+margin, request, &done); err != nil {
		return err
	}
	if !done.Detached {
		return fmt.Errorf("%s: the answer to detach lacks \"detached\": true", c.Socket)
	}
	return nil
}

// Attach uses a flash device, which may be formatted within bound, and returns the number of its units.
func (c Client) Attach(ctx context.Context, flash string, format bool, bound time.Duration) (uint64, error) {
	var done struct {
		Attached   bool   `json:"attached"`
		UnitsTotal uint64 `json:"units_total"`
	}
	request := map[string]any{"command": "attach", "flash": flash, "flash_bytes": nil, "format": format}
	if err := c.ask(ctx, bound, request, &done); err != nil {
		return 0, err
	}
	if !done.Attached {
		return 0, fmt.Errorf("%s: the answer to attach lacks \"attached\": true", c.Socket)
	}
	return done.UnitsTotal, nil
}

// seconds is a bound in the whole seconds of the protocol, at least one.
func seconds(bound time.Duration) int64 { return max(1, int64(bound/time.Second)) }

// answer is one line of the server.
type answer struct {
	Progress *string         `json:"progress"`
	OK       json.RawMessage `json:"ok"`
	Error    *Error          `json:"error"`
}

func (c Client) ask(ctx context.Context, bound time.Duration, request any, into any) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	var dialer net.Dialer
	stream, err := dialer.DialContext(ctx, "unix", c.Socket)
	if err != nil {
		return fmt.Errorf("%s: no Larder server listens there: %w", c.Socket, err)
	}
	defer stream.Close()
	// The end of the context ends reads and writes in progress.
	stop := context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("%s: the request: %w", c.Socket, err)
	}
	if _, err := stream.Write(append(line, '\n')); err != nil {
		return c.lost(ctx, err)
	}
	result, err := c.result(ctx, stream)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(result, into); err != nil {
		return fmt.Errorf("%s: the server's answer cannot be parsed: %w", c.Socket, err)
	}
	return nil
}

// result reads lines up to the result.
func (c Client) result(ctx context.Context, stream io.Reader) (json.RawMessage, error) {
	lines := bufio.NewScanner(stream)
	lines.Buffer(make([]byte, 0, 4096), MostLine)
	for lines.Scan() {
		var got answer
		if err := json.Unmarshal(lines.Bytes(), &got); err != nil {
			return nil, fmt.Errorf("%s: the server's answer cannot be parsed: %w", c.Socket, err)
		}
		switch {
		case got.Error != nil:
			return nil, got.Error
		case got.OK != nil:
			return got.OK, nil
		}
	}
	if err := lines.Err(); err != nil {
		return nil, c.lost(ctx, err)
	}
	return nil, fmt.Errorf("%s: the server closed the connection without an answer", c.Socket)
}

func (c Client) lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: no answer within the time limit: %w", c.Socket, ctx.Err())
	}
	return fmt.Errorf("%s: the connection to the server failed: %w", c.Socket, err)
}

// Refused reports whether the server itself reported the error, as opposed to a server that cannot be reached.
func Refused(err error) bool {
	var reported *Error
	return errors.As(err, &reported)
}
