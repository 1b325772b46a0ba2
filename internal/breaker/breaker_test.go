package breaker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// TestPrivateRefusals: who may not know of others' VMs is not told how they failed, and knows of the own ones.
func TestPrivateRefusals(t *testing.T) {
	s, now := New(Settings{Failures: 2, Window: time.Hour, First: time.Hour, Most: time.Hour}), time.Now()
	fail := func(image, user string) {
		ticket, err := s.Admit(now, Start{Image: image, User: user})
		if err != nil {
			t.Fatal(err)
		}
		s.Failed(now, ticket, Unclear, "how "+user+"'s failed")
	}
	fail("image", "eva")
	fail("image", "max")
	fail("a", "tom")
	fail("a", "tom")
	for _, c := range []struct {
		start Start
		want  bool
	}{{Start{Image: "image", User: "x"}, true}, {Start{Image: "image", User: "x", Private: true}, false},
		{Start{Image: "b", User: "tom", Private: true}, true}} {
		_, err := s.Admit(now, c.start)
		if err == nil || strings.Contains(err.Error(), "'s failed") != c.want {
			t.Errorf("%+v: %v", c.start, err)
		}
	}
}

// play starts VMs: "i1 u1 fail", "i1 u1 host" (surely the host's fault), "i1 u1 ok", "i1 u1 bad" (a bad request), "i1
// u1 left", or "wait 5m". What opens, and what is refused, is written down. The user "-" is the site itself, "own" the
// agent's own VM; "due" writes down whether that is due.
func play(t *testing.T, script string) (s *Set, heard []string) {
	t.Helper()
	s = New(Settings{Failures: 3, Window: 10 * time.Minute, First: time.Minute, Most: 10 * time.Minute})
	synctest.Test(t, func(t *testing.T) {
		for line := range strings.Lines(script) {
			f := strings.Fields(line)
			if len(f) == 0 {
				continue
			}
			if f[0] == "due" {
				heard = append(heard, fmt.Sprint("due ", s.TrialDue(time.Now())))
				continue
			}
			if f[0] == "untested" {
				heard = append(heard, fmt.Sprint("untested ", s.Untested(time.Now())))
				continue
			}
			if f[0] == "wait" {
				d, err := time.ParseDuration(f[1])
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(d)
				continue
			}
			start := Start{Image: f[0], User: strings.Trim(f[1], "-"), Own: f[1] == "own"}
			ticket, err := s.Admit(time.Now(), start)
			if err != nil {
				e := new(farm.Error)
				if !errors.As(err, &e) || e.Kind != farm.Unavailable || e.Code != farm.CodeBackedOff {
					t.Fatal(err)
				}
				heard = append(heard, "refused "+strings.SplitN(e.Message, " backs off", 2)[0])
				continue
			}
			switch f[2] {
			case "ok":
				if s.Started(time.Now(), ticket) {
					heard = append(heard, "healed")
				}
			case "left":
				s.Left(ticket)
			default:
				blame := map[string]Blame{"fail": Unclear, "host": TheHost, "bad": Nobody}[f[2]]
				for _, key := range s.Failed(time.Now(), ticket, blame, "no boot of "+f[0]) {
					heard = append(heard, "open "+key.String())
				}
			}
			time.Sleep(time.Second)
		}
	})
	return s, heard
}

func TestBreakers(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   []string
	}{
		"two in a row": {"i1 u1 fail\ni1 u1 fail\ni1 u1 ok\ni1 u1 fail\ni1 u1 fail", nil},
		"a user with one image": {"i1 u1 fail\ni1 u1 fail\ni1 u1 fail\ni1 u1 ok\ni1 u2 ok\ni2 u1 ok",
			[]string{"open user u1", "refused user u1", "refused user u1"}},
		"an image for several users": {"i1 u1 fail\ni1 u2 fail\ni1 u1 fail\ni1 u3 ok\ni2 u1 ok",
			[]string{"open image i1", "refused image i1"}},
		"an image of the site itself": {"w - fail\nw - fail\nw - fail\nw - ok\nv - ok\ni1 u1 ok",
			[]string{"open image w", "refused image w"}},
		"a sound image of the site proves itself": {"w - fail\nw - fail\nv - ok\nw - fail", []string{"open image w"}},
		"several images: the host": {"i1 u1 fail\ni2 u2 fail\ni1 u3 fail\ni3 u4 ok",
			[]string{"open this host", "refused this host"}},
		"several images, others between": {"i1 u1 fail\ni3 u3 ok\ni2 u2 fail\ni3 u3 ok\ni1 u4 fail", nil},
		"surely the host": {"i1 u1 host\ni1 u2 host\ni1 u1 host\ni2 u2 ok",
			[]string{"open this host", "refused this host"}},
		"surely the host, says one user": {"i1 u1 host\ni1 u1 host\ni1 u1 host\ni1 u2 ok\ni1 u1 ok",
			[]string{"open user u1", "refused user u1"}},
		"several images of one user": {"i1 u1 fail\ni2 u1 fail\ni1 u1 fail\ni1 u2 ok\ni1 u1 ok",
			[]string{"open user u1", "refused user u1"}},
		"one user has the agent look": {"due\ni1 u1 host\ni1 u1 host\ni1 u1 host\ndue\nm own fail\ni1 " +
			"u2 ok", []string{"due false", "open user u1", "due true", "open this host", "refused this host"}},
		"one user, and the agent's own VM starts": {"i1 u1 host\ni1 u1 host\ni1 u1 host\nm own ok\ndue\ni1 u2 ok\ni1 " +
			"u1 ok", []string{"open user u1", "due false", "refused user u1"}},
		"the agent's own VM has no room": {"i1 u1 host\ni1 u1 host\ni1 u1 host\nm own left\ndue\ni1 u2 ok",
			[]string{"open user u1", "due true"}},
		"nothing of its own to try": {"i1 u1 host\ni1 u1 host\ni1 u1 host\nuntested\ndue\ni1 u2 ok",
			[]string{"open user u1", "untested false", "due false"}},
		"old suspicions": {"i1 u1 host\ni1 u1 host\ni1 u1 host\nwait 11m\ndue",
			[]string{"open user u1", "due false"}},
		"the site itself and a user": {"w - host\ni1 u1 host\nw - host", []string{"open this host"}},
		"bad requests count for nobody": {"i1 u1 bad\ni1 u1 bad\ni1 u1 bad\ni1 u1 bad\ni1 u2 bad\ni2 u2 bad",
			nil},
		"too far apart": {"i1 u1 fail\nwait 6m\ni1 u1 fail\nwait 6m\ni1 u1 fail", nil},
		"a trial that works": {"i1 u1 fail\ni1 u1 fail\ni1 u1 fail\nwait 1m\ni1 u1 ok\ni1 u1 ok",
			[]string{"open user u1"}},
		"a trial that fails doubles the time": {"i1 u1 fail\ni1 u1 fail\ni1 u1 fail\nwait 1m\ni1 u1 fail\nwait " +
			"90s\ni1 u1 ok\nwait 30s\ni1 u1 ok", []string{"open user u1", "open user u1", "refused user u1"}},
		"a trial whose caller leaves": {"i1 u1 fail\ni1 u1 fail\ni1 u1 fail\nwait 1m\ni1 u1 left\ni1 u1 ok",
			[]string{"open user u1"}},
		"the host heals": {"i1 u1 host\ni1 u2 host\ni1 u1 host\ndue\nwait 1m\ndue\ni1 u1 " +
			"fail\nm own ok\ni1 u1 ok",
			[]string{"open this host", "due false", "due true", "refused this host", "healed"}},
		"the host's trial fails": {"i1 u1 host\ni1 u2 host\ni1 u1 host\nwait 1m\nm own fail\nwait " +
			"90s\nm own ok\nwait 30s\nm own ok",
			[]string{"open this host", "open this host", "refused this host", "healed"}},
		"after the host nobody else is to blame": {"i1 u1 fail\ni2 u2 fail\ni1 u1 fail\nwait 1m\nm own ok\ni1 u1 " +
			"fail\ni1 u1 fail", []string{"open this host", "healed"}},
		"healed in vain: twice as long": {"i1 u1 host\ni1 u2 host\ni1 u1 host\nwait 1m\nm own ok\ni1 u1 " +
			"host\ni1 u2 host\ni1 u1 host\nwait 90s\nm own ok\nwait 30s\nm own ok",
			[]string{"open this host", "healed", "open this host", "refused this host", "healed"}},
		"untested: users try, twice as long next": {"i1 u1 host\ni1 u2 host\ni1 u1 host\nuntested\nwait " +
			"1m\nuntested\ni1 u1 host\ni1 u2 host\ni1 u1 host\nwait 90s\nuntested\nwait 30s\nuntested\ni1 u2 ok",
			[]string{"open this host", "untested false", "untested true", "open this host", "untested false",
				"untested true"}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := play(t, c.script); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%q, not %q", got, c.want)
			}
		})
	}
}

// TestOneTrial: while one VM is tried, others wait for what becomes of it.
func TestOneTrial(t *testing.T) {
	s := New(Settings{Failures: 1, Window: time.Hour, First: time.Minute, Most: time.Hour})
	now := time.Unix(0, 0)
	ticket, _ := s.Admit(now, Start{Image: "i", User: "u"})
	s.Failed(now, ticket, Unclear, "x")
	later := now.Add(time.Minute)
	trial, err := s.Admit(later, Start{Image: "i", User: "u"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admit(later, Start{Image: "j", User: "u"}); err == nil ||
		!strings.Contains(err.Error(), "one VM is tried") {
		t.Errorf("a second trial: %v", err)
	}
	if open := s.Open(); len(open) != 1 || !open[0].Trial || open[0].Last != "x" {
		t.Errorf("%+v", open)
	}
	s.Started(later, trial)
	if open := s.Open(); len(open) != 0 {
		t.Errorf("%+v", open)
	}
}

// TestBounds: whatever happens, a breaker is open no longer than it may be, what is sound is never refused for ever,
// and nothing grows.
func TestBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	settings := Settings{Failures: 3, Window: 10 * time.Minute, First: time.Minute, Most: 8 * time.Minute}
	s, now := New(settings), time.Unix(0, 0)
	var open []*Ticket
	for range 20_000 {
		now = now.Add(time.Duration(r.IntN(20)) * time.Second)
		if ticket, err := s.Admit(now, Start{Image: fmt.Sprint("i", r.IntN(4)), User: fmt.Sprint("u", r.IntN(4)),
			Own: r.IntN(5) == 0}); err == nil {
			open = append(open, ticket)
		}
		for len(open) > 5 || len(open) > 0 && r.IntN(2) == 0 {
			ticket := open[0]
			open = open[1:]
			switch r.IntN(4) {
			case 0:
				s.Started(now, ticket)
			case 1:
				s.Left(ticket)
			default:
				s.Failed(now, ticket, Blame(r.IntN(3)), "x")
			}
		}
		for _, b := range s.Open() {
			if b.Until.Sub(now) > settings.Most {
				t.Fatalf("%v is open for %v", b.Key, b.Until.Sub(now))
			}
		}
		if len(s.failures) > 2000 {
			t.Fatalf("%d failures are kept", len(s.failures))
		}
	}
	for _, ticket := range open {
		s.Left(ticket)
	}
	now = now.Add(settings.Most)
	if ticket, err := s.Admit(now, Start{Image: "i0", Own: true}); err != nil {
		t.Fatal(err)
	} else {
		s.Started(now, ticket)
	}
	for i := range 4 {
		ticket, err := s.Admit(now, Start{Image: fmt.Sprint("i", i), User: fmt.Sprint("u", i)})
		if err != nil {
			t.Fatal(err)
		}
		s.Started(now, ticket)
	}
	if len(s.Open()) > 0 {
		t.Errorf("%+v", s.Open())
	}
}

// TestUsersWithoutAName: of users whom the name service does not know, any number closes neither a host nor an image to
// others.
func TestUsersWithoutAName(t *testing.T) {
	for name, blame := range map[string]Blame{"unclear": Unclear, "the host's": TheHost} {
		for _, nameless := range []bool{true, false} {
			s, now := New(Defaults), time.Now()
			for i := range 6 {
				start := Start{Image: fmt.Sprint("i", i%2), User: fmt.Sprint("u", i), Nameless: nameless}
				if ticket, err := s.Admit(now, start); err == nil {
					s.Failed(now, ticket, blame, "x")
				}
			}
			if _, err := s.Admit(now, Start{Image: "i0", User: "lisa"}); (err == nil) != nameless {
				t.Errorf("%s, users without a name: %v: %v", name, nameless, err)
			}
		}
	}
}
