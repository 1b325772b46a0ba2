package names

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// directory plays getent of a host whose users are in no file.
func directory(entries map[string]string) program.Run {
	return func(_ context.Context, c program.Call) ([]byte, error) {
		var out strings.Builder
		var err error
		for _, key := range c.Args[1:] {
			line, ok := entries[c.Args[0]+" "+key]
			if !ok {
				err = &program.Failed{Program: "getent", Status: missing}
				continue
			}
			fmt.Fprintln(&out, line)
		}
		return []byte(out.String()), err
	}
}

var farmHands = map[string]string{
	"passwd 70001": "dora:*:70001:7000:Dora D.,,,:/nfs/dora:/bin/bash",
	"passwd dora":  "dora:*:70001:7000:Dora D.,,,:/nfs/dora:/bin/bash",
	"passwd 70002": "70001:*:70003:7000::/:/bin/sh", // another number than asked for
	"passwd 70004": "short:*:70004",
	"passwd 70005": "odd:*:x:7000::/:/bin/sh",
	"group 7000":   "cms:*:7000:dora,erik",
	"group 7001":   "atlas:*:7001:",
	"group 7002":   "bad:*:no:",
}

func TestUser(t *testing.T) {
	s := New(directory(farmHands))
	want := User{Name: "dora", Home: "/nfs/dora", UID: 70001, GID: 7000}
	if u, err := s.User(t.Context(), 70001); err != nil || u != want {
		t.Errorf("%+v, %v", u, err)
	}
	if u, err := s.Named(t.Context(), "dora"); err != nil || u != want {
		t.Errorf("%+v, %v", u, err)
	}
	for _, uid := range []uint32{1, 70002} {
		if u, err := s.User(t.Context(), uid); !errors.Is(err, ErrUnknown) {
			t.Errorf("%d: %+v, %v", uid, u, err)
		}
	}
	for _, uid := range []uint32{70004, 70005} {
		if u, err := s.User(t.Context(), uid); !farm.IsCode(err, farm.CodeNoNames) {
			t.Errorf("%d: %+v, %v", uid, u, err)
		}
	}
	for _, name := range []string{"", "70001", "-s", "nobody-of-that-name"} {
		if u, err := s.Named(t.Context(), name); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %+v, %v", name, u, err)
		}
	}
}

func TestGroups(t *testing.T) {
	s := New(directory(farmHands))
	found, err := s.Groups(t.Context(), []uint32{7000, 7001, 9, 7000})
	if err != nil || len(found) != 2 || found[7000] != "cms" || found[7001] != "atlas" {
		t.Errorf("%v, %v", found, err)
	}
	for _, gids := range [][]uint32{nil, {9}, {9, 10}} {
		if found, err := s.Groups(t.Context(), gids); err != nil || len(found) != 0 {
			t.Errorf("%v: %v, %v", gids, found, err)
		}
	}
	if found, err := s.Groups(t.Context(), []uint32{7000, 7002}); !farm.IsCode(err, farm.CodeNoNames) {
		t.Errorf("%v, %v", found, err)
	}
}

// TestNoAnswer: what getent could not find out is never taken for "there is no such user".
func TestNoAnswer(t *testing.T) {
	for name, err := range map[string]error{
		"no getent": fmt.Errorf("getent: %w", os.ErrNotExist), "status 1": &program.Failed{Status: 1},
		"killed": &program.Failed{Status: -1}, "too much": program.ErrTooMuch,
	} {
		s := New(func(context.Context, program.Call) ([]byte, error) { return nil, err })
		_, uerr := s.User(t.Context(), 70001)
		_, gerr := s.Groups(t.Context(), []uint32{7000})
		for _, err := range []error{uerr, gerr} {
			if !farm.IsCode(err, farm.CodeNoNames) || !farm.IsKind(err, farm.Unavailable) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if mine := s.Mine(); mine != "" {
			t.Errorf("%s: %q", name, mine)
		}
	}
}

// TestHangs: a name service that never answers is waited for as long as the limit says, by a few programs for any
// number of callers, and is asked again some seconds later.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most, asked atomic.Int32
		hangs := true
		s := New(func(ctx context.Context, c program.Call) ([]byte, error) {
			asked.Add(1)
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			if hangs {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			return directory(farmHands)(ctx, c)
		})
		began := time.Now()
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				if _, err := s.User(t.Context(), uint32(70001+i%10)); !farm.IsCode(err, farm.CodeNoNames) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > limit || most.Load() > atOnce || asked.Load() > 10 {
			t.Errorf("%v, %d at once, asked %d times", took, most.Load(), asked.Load())
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Groups(impatient, []uint32{7000}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		hangs = false
		time.Sleep(limit + again + time.Second)
		if u, err := s.User(t.Context(), 70001); err != nil || u.Name != "dora" {
			t.Errorf("%+v, %v", u, err)
		}
	})
}

// TestForgets: a user who was renamed, removed or added is seen within a bounded time.
func TestForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		hands := map[string]string{"passwd 70001": farmHands["passwd 70001"]}
		s := New(func(ctx context.Context, c program.Call) ([]byte, error) { asked++; return directory(hands)(ctx, c) })
		for range 3 {
			s.User(t.Context(), 70001)
			s.User(t.Context(), 9)
		}
		if asked != 2 {
			t.Errorf("asked %d times", asked)
		}
		delete(hands, "passwd 70001")
		hands["passwd 9"] = "news:*:9:9::/:/bin/sh"
		time.Sleep(again + time.Second)
		if _, err := s.User(t.Context(), 9); err != nil {
			t.Error(err)
		}
		time.Sleep(fresh)
		if _, err := s.User(t.Context(), 70001); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		if len(s.known) > 2 {
			t.Errorf("%d replies are kept", len(s.known))
		}
	})
}

// TestHost asks the real one for who is in every host's files.
func TestHost(t *testing.T) {
	root, err := Host().User(t.Context(), 0)
	if err != nil || root.Name != "root" || root.UID != 0 {
		t.Errorf("%+v, %v", root, err)
	}
	groups, err := Host().Groups(t.Context(), []uint32{0, 4294967294})
	if err != nil || groups[0] != "root" || len(groups) != 1 {
		t.Errorf("%v, %v", groups, err)
	}
	if _, err := Host().User(t.Context(), 4294967294); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

// TestGroupsOf: a user's groups are its own and those that it is a member of.
func TestGroupsOf(t *testing.T) {
	s := New(directory(map[string]string{"initgroups dora": "dora                  7001 7002", "initgroups max": "max",
		"initgroups odd": "odd 7x", "initgroups a b": "a b 9"}))
	for name, want := range map[string]string{"dora": "[7000 7001 7002]", "max": "[7000]", "a b": "[7000 9]",
		"nobody": "[7000]"} {
		if got, err := s.GroupsOf(t.Context(), User{Name: name, GID: 7000}); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if got, err := s.GroupsOf(t.Context(), User{Name: "odd", GID: 7000}); !farm.IsCode(err, farm.CodeNoNames) {
		t.Errorf("%v, %v", got, err)
	}
	down := New(func(context.Context, program.Call) ([]byte, error) { return nil, errors.New("no answer") })
	if got, err := down.GroupsOf(t.Context(), User{Name: "dora"}); !farm.IsCode(err, farm.CodeNoNames) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestSetsOfGroups: a group that was asked about is known in every other set of groups, and one program is asked about
// some of them at most.
func TestSetsOfGroups(t *testing.T) {
	var asked, most int
	s := New(func(ctx context.Context, c program.Call) ([]byte, error) {
		asked += len(c.Args) - 1
		most = max(most, len(c.Args)-1)
		return directory(farmHands)(ctx, c)
	})
	for last := range uint32(50) {
		if found, err := s.Groups(t.Context(), []uint32{7000, 7001, 100, 100 + last}); err != nil || len(found) != 2 {
			t.Fatalf("%v, %v", found, err)
		}
	}
	if asked != 52 {
		t.Errorf("asked about %d groups of 52", asked)
	}
	many := make([]uint32, 1<<16)
	for i := range many {
		many[i] = 1_000_000 + uint32(i)
	}
	if _, err := s.Groups(t.Context(), many); err != nil || most > mostKeys {
		t.Errorf("%d groups of one program: %v", most, err)
	}
	if _, err := s.Groups(t.Context(), []uint32{9}); err != nil || len(s.groups) > mostGroups {
		t.Errorf("%d groups are kept: %v", len(s.groups), err)
	}
}

// TestKnows tells of users who were asked about, and does not ask.
func TestKnows(t *testing.T) {
	asked := 0
	s := New(func(ctx context.Context, c program.Call) ([]byte, error) {
		asked++
		return directory(farmHands)(ctx, c)
	})
	if s.Knows(70001) || asked != 0 {
		t.Error("a user is known whom nobody asked about")
	}
	s.User(t.Context(), 70001)
	s.User(t.Context(), 9)
	if !s.Knows(70001) || s.Knows(9) || asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}
