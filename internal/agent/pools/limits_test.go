package pools

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
)

// TestFollow holds sessions to limits in virtual time: what is told when, and when they end.
func TestFollow(t *testing.T) {
	const never = time.Duration(-1)
	once := []string{"warning", "ends"}
	for name, c := range map[string]struct {
		idle, total time.Duration
		types       time.Duration // something, every so often, for an hour
		computes    bool          // for an hour
		restarted   time.Duration // the agent, so long after the VM was made
		told        []string      // the first word of codes
		code        farm.Code
		after       time.Duration // from the VM's start to its end; never: it does not end within two hours
	}{
		"no limits": {after: never},
		"idle":      {idle: 10 * time.Minute, told: once, code: CodePoolIdle, after: 10 * time.Minute},
		"typing": {idle: 10 * time.Minute, types: time.Minute, told: once, code: CodePoolIdle,
			after: 70 * time.Minute},
		"computing": {idle: 10 * time.Minute, computes: true, told: once, code: CodePoolIdle,
			after: 70 * time.Minute},
		"warned and awake": {idle: 10 * time.Minute, types: 9 * time.Minute,
			told: append(slices.Repeat([]string{"warning"}, 7), "ends"), code: CodePoolIdle, after: 64 * time.Minute},
		"total": {idle: 90 * time.Minute, total: time.Hour, computes: true, told: once, code: CodePoolTime,
			after: time.Hour},
		"total, restarted": {idle: 2 * time.Hour, total: time.Hour, restarted: 50 * time.Minute, told: once,
			code: CodePoolTime, after: time.Hour},
		"idle, restarted": {idle: 10 * time.Minute, restarted: 9 * time.Minute, told: once, code: CodePoolIdle,
			after: 19 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				created := time.Now()
				time.Sleep(c.restarted)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
				defer cancel()
				var told []string
				var code farm.Code
				var at time.Duration
				busyTime := func() time.Duration { return min(time.Since(created), time.Hour) }
				s := Session{Pool: "p", Began: created,
					Pools: func() []config.Pool { return []config.Pool{{Name: "p", Idle: c.idle, Total: c.total}} },
					Used: func() (time.Duration, error) {
						if c.computes {
							return busyTime() / 2, nil
						}
						return busyTime() / 50, nil
					},
					Active: func() time.Time {
						if c.types == 0 {
							return time.Time{}
						}
						return created.Add(busyTime().Truncate(c.types))
					},
					Warn: func(code, text string) { told = append(told, strings.TrimPrefix(code, "pool-")) },
					End: func(err error) {
						code, at = codeOf(err), time.Since(created)-grace
						cancel()
					}}
				s.Follow(ctx)
				if !slices.Equal(told, c.told) || code != c.code {
					t.Errorf("told %q, ended by %q; want %q, %q", told, code, c.told, c.code)
				}
				if slack := time.Minute; c.after != never && (at < c.after || at > c.after+slack) {
					t.Errorf("ended after %v; want %v", at, c.after)
				}
			})
		})
	}
}

// TestLimitsTakenAway: what the configuration says now counts, and a pool that is there no more limits nothing.
func TestLimitsTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began, ended := time.Now(), false
		s := Session{Pool: "p", Began: began, Used: func() (time.Duration, error) { return 0, nil },
			Active: func() time.Time { return time.Time{} }, End: func(error) { ended = true },
			Warn: func(code, _ string) {
				if code == api.CodePoolEnds {
					t.Error("the end is told")
				}
			},
			Pools: func() []config.Pool {
				if time.Since(began) > 9*time.Minute {
					return nil
				}
				return []config.Pool{{Name: "p", Total: 10 * time.Minute}}
			}}
		if s.Follow(ctx); ended {
			t.Error("it was ended by a limit that is none any more")
		}
	})
}
