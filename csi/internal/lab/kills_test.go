// SPDX-License-Identifier: MIT OR Apache-2.0

// The part kills: each request is interrupted at each program that it executes, and repeated until it succeeds. What is killed:
//   - the plugin (-9), with the program;
//   - the program alone, whose error ends the request;
//   - the client, which repeats the request while the first one still runs;
//   - the server (-9), while a request waits in the program.

package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"larder.dev/csi/internal/device"
)

// at are the places of programs, in the order in which a request comes to them: before and after each.
func at(programs ...string) []trap {
	var all []trap
	for _, program := range programs {
		all = append(all, trap{program: program, when: "before"}, trap{program: program, when: "after"})
	}
	return all
}

// places are those of each request. A publish executes no program.
type places struct{ stage, unpublish, unstage []trap }

// placesOf are the places of a volume that is staged for the first time. A server runs when its flash is ready.
func placesOf(v *volume, victim string) places {
	var stage, unstage []trap
	if victim != "server" {
		stage = at("lvcreate", "blkdiscard", "lvchange")
	}
	if v.l.kind == device.NBD {
		stage = append(stage, at("nbd-client")...)
		unstage = at("nbd-client")
	}
	if v.fileSystem != "" {
		mkfs := "mkfs." + v.fileSystem
		stage = append(stage, trap{program: mkfs, when: "before"})
		for _, write := range []int{1, 4, 8} {
			stage = append(stage, trap{program: mkfs, when: "write", write: write})
		}
		stage = append(stage, trap{program: mkfs, when: "after"})
		stage = append(stage, at("mount")...)
		unstage = append(at("umount"), unstage...)
	}
	return places{stage, at("umount"), unstage}
}

// only are the places that a request comes to as the n-th, from 0, and that are accepted.
func (p places) only(accepts func(n int, t trap) bool) places {
	of := func(all []trap) []trap {
		var some []trap
		for n, t := range all {
			if accepts(n, t) {
				some = append(some, t)
			}
		}
		return some
	}
	return places{of(p.stage), of(p.unpublish), of(p.unstage)}
}

// requests counts the requests that have places: each comes to its first one.
func (p places) requests() int {
	count := 0
	for _, of := range [][]trap{p.stage, p.unpublish, p.unstage} {
		count += min(len(of), 1)
	}
	return count
}

// passes are the places of each pass through the sequence. After a kill the request may continue past the places behind it: what a
// client that was killed has begun ends with its program, and with another server the request succeeds. These places are another
// pass's.
func passes(v *volume, victim string) []places {
	all := placesOf(v, victim)
	switch victim {
	case "client":
		before := func(_ int, t trap) bool { return t.when == "before" }
		behind := func(_ int, t trap) bool { return t.when != "before" }
		return []places{all.only(before), all.only(behind)}
	case "server":
		var each []places
		for pass := range max(len(all.stage), len(all.unpublish), len(all.unstage)) {
			each = append(each, all.only(func(n int, _ trap) bool { return n == pass }))
		}
		return each
	default:
		return []places{all}
	}
}

var errNotThere = errors.New("the request succeeded without coming there")

func kills(l *lab) {
	all := l.volumes("kills")
	rounds := 0
	for _, victim := range strings.Fields(os.Getenv("VICTIMS")) {
		for _, v := range all {
			hits, least := 0, 0
			for _, at := range passes(v, victim) {
				hits += v.interrupted(victim, at)
				least += at.requests()
			}
			rounds += hits
			var few error
			if hits < least {
				few = fmt.Errorf("expected %d places at least", least)
			}
			l.must(fmt.Sprintf("%s: kill of the %s at %d places of stage, unpublish and unstage: each repeated, data verified",
				v, victim, hits), few)
		}
	}
	for _, v := range all {
		l.quietly("create", v.create()) // also without victims
		l.must(v.String()+": 6 stages with kill -9 of the plugin at any time", v.anyTime(6))
	}
	l.must(all[0].String()+": a read-only publish permits no writes", all[0].publishedReadOnly())
	for n, v := range all {
		places := at("lvremove")
		l.must(v.String()+": delete", deleteStep.twice(v))
		l.quietly("trap", places[n%2].set())
		l.must(v.String()+": kill -9 of the plugin "+places[n%2].String(), errorsOf(inTrap, l.plugin.again))
	}
	l.gone(all...)
	l.say("# %d kills at chosen places", rounds)
}

// inTrap waits until a program is in the trap.
func inTrap() error {
	return eventually(90*time.Second, func() error {
		if !hit() {
			return errors.New("no program came to the trap")
		}
		return nil
	})
}

// interrupted takes a new volume through the sequence with kills at each of these places. It returns how many kills there were.
func (v *volume) interrupted(victim string, at places) int {
	l := v.l
	l.t.Helper()
	l.quietly("create", v.create())
	hits := stageStep.through(v, victim, at.stage)
	l.quietly("publish", publishStep.twice(v))
	if victim == "server" && l.kind == device.NBD {
		// Its death ended the connection, and a file system has met errors.
		l.quietly("its pods are deleted, and made again", errorsOf(
			func() error { return unpublishStep.twice(v) }, func() error { return unstageStep.twice(v) },
			func() error { return stageStep.twice(v) }, func() error { return publishStep.twice(v) }))
	}
	l.quietly("data is written", errorsOf(func() error { return v.write(1, 1) }, func() error { return v.write(2, 3) }))
	l.quietly("data is read back", v.verify(2, 3, 1))
	hits += unpublishStep.through(v, victim, at.unpublish)
	hits += unstageStep.through(v, victim, at.unstage)
	l.quietly("an unstaged volume has nothing left", v.unused())
	l.quietly("staged warm, published", errorsOf(func() error { return stageStep.twice(v) }, func() error { return publishStep.twice(v) }))
	l.quietly("its data", v.verify(2, 3, 1))
	l.quietly("unpublish, unstage", errorsOf(func() error { return unpublishStep.twice(v) }, func() error { return unstageStep.twice(v) }))
	l.quietly("delete", deleteStep.twice(v))
	l.quietly("deleted", l.plugin.again()) // its start removes flash
	l.quietly("the record is gone", eventually(time.Minute, func() error {
		if _, err := l.api.record(v.id); err == nil {
			return errors.New("the record exists")
		}
		return nil
	}))
	l.quietly("a blank backing volume", v.blank())
	l.quietly("create", v.create())
	return hits
}

// through repeats the request once for each place, with a kill there, and then until it succeeds.
func (s step) through(v *volume, victim string, places []trap) int {
	l, hits := v.l, 0
	l.t.Helper()
	for _, place := range places {
		what := fmt.Sprintf("%s: %s: kill of the %s %s", v, s.name, victim, place)
		l.quietly(what, place.set())
		ctx, cancel := limited()
		answer := make(chan error, 1)
		go func() { answer <- s.unlocked(v, ctx) }()
		err := eventually(bound, func() error {
			if hit() {
				return nil
			}
			select {
			case err := <-answer:
				answer <- err
				if err == nil {
					return &final{errNotThere}
				}
				return &final{fmt.Errorf("the request failed before it came there: %w", err)}
			default:
				return errors.New("the request did not come there")
			}
		})
		switch {
		case victim == "client" && errors.Is(err, errNotThere):
			// The request of the client that was killed has passed this place already.
			err = nil
		case err == nil:
			// After an unstage a volume has no server.
			if victim != "server" || l.kubelet.of(v.id) != nil {
				hits++
			}
			fmt.Printf("%s: hit\n", what)
			err = place.kill(v, victim, s, cancel, answer)
		}
		cancel()
		l.quietly(what, errors.Join(err, place.release()))
	}
	l.quietly(fmt.Sprintf("%s: %s, repeated", v, s.name), s.twice(v))
	return hits
}

// unlocked sends the request, and repeats it while the plugin, which has just started, examines the flash of the volume.
func (s step) unlocked(v *volume, ctx context.Context) error {
	for {
		err := s.call(v, ctx)
		if status.Code(err) != codes.Aborted || ctx.Err() != nil {
			return err
		}
		sleep(ctx, 200*time.Millisecond)
	}
}

// kill kills the victim while a program is in the trap.
func (t trap) kill(v *volume, victim string, s step, cancel func(), answer chan error) error {
	l := v.l
	switch victim {
	case "plugin":
		return l.plugin.again()
	case "program":
		if err := t.killProgram(); err != nil {
			return err
		}
		// An error, unless the driver could do without the program.
		<-answer
	case "client":
		cancel()
		<-answer
		ctx, cancel := context.WithTimeout(background, 10*time.Second)
		defer cancel()
		if err := s.call(v, ctx); status.Code(err) != codes.Aborted {
			return fmt.Errorf("the request beside the first one: %v, expected Aborted", err)
		}
	case "server":
		if pod := l.kubelet.of(v.id); pod != nil {
			if err := l.kubelet.killServer(v.id); err != nil {
				return err
			}
		}
		if err := t.release(); err != nil {
			return err
		}
		<-answer
	}
	return nil
}

// publishedReadOnly publishes a staged volume for reads alone.
func (v *volume) publishedReadOnly() error {
	v.readOnly = true
	defer func() { v.readOnly = false }()
	return errorsOf(
		func() error { return stageStep.twice(v) },
		func() error { return publishStep.twice(v) },
		func() error {
			if err := v.write(1, pages); !errors.Is(err, syscall.EROFS) {
				return fmt.Errorf("a write: %v, expected EROFS", err)
			}
			return nil
		},
		func() error { return unpublishStep.twice(v) }, func() error { return unstageStep.twice(v) })
}

// anyTime kills the plugin at a random time of a stage or an unstage.
func (v *volume) anyTime(rounds int) error {
	for round := range rounds {
		s := stageStep
		if round%2 == 1 {
			s = unstageStep
		}
		ctx, cancel := limited()
		answer := make(chan error, 1)
		go func() { answer <- s.call(v, ctx) }()
		time.Sleep(time.Duration(rand.IntN(5000)) * time.Millisecond)
		err := v.l.plugin.again()
		cancel()
		<-answer
		if err := errors.Join(err, s.twice(v)); err != nil {
			return fmt.Errorf("round %d, %s: %w", round, s.name, err)
		}
	}
	return nil
}
