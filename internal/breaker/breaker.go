// Package breaker decides when an image, a user or a host whose VMs keep failing to start backs off, for how long, and when it is tried again.
// It is pure: whoever asks brings the time, and tells what became of each VM.
package breaker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// Kind is what can back off.
type Kind string

// The kinds.
const (
	Image Kind = "image"
	User  Kind = "user"
	Host  Kind = "host"
)

// Key names one breaker. The host's has no name.
type Key struct {
	Kind Kind
	Name string
}

func (k Key) String() string {
	if k.Kind == Host {
		return "this host"
	}
	return string(k.Kind) + " " + k.Name
}

// Settings bound it.
type Settings struct {
	Failures int           // in a row, that open a breaker
	Window   time.Duration // within which they count
	First    time.Duration // how long a breaker is open at first; each time its trial fails, twice as long
	Most     time.Duration // at most
}

// Defaults hold off what fails all the time and leave alone what fails now and then: three in a row are one in a thousand where
// one in ten fails.
var Defaults = Settings{Failures: 3, Window: 15 * time.Minute, First: time.Minute, Most: time.Hour}

// Start is an attempt to start a VM. One of the site itself, as a batch system's node, has no user.
type Start struct{ Image, User string }

// Blame is whose fault a failure can be.
type Blame int

// Whose fault. Nobody: the request made no sense, or was not allowed, and says nothing of image, host or hardware.
const (
	Nobody Blame = iota
	Unclear
	TheHost // a full disk, a hypervisor that refuses: whatever the image was
)

// Set is all breakers of one host. It is not safe for use by several goroutines.
type Set struct {
	settings Settings
	breakers map[Key]*breaker
	failures []failure // in the order of their time, since what they were about last worked
	worked   time.Time // when any VM last started
}

type failure struct {
	Start
	at   time.Time
	host bool // surely the host's
	text string
}

type breaker struct {
	until  time.Time
	length time.Duration
	trial  bool // one start is under way to see whether it has healed
	last   string
	since  time.Time // opened first
}

// New makes a set in which all is well.
func New(s Settings) *Set { return &Set{settings: s, breakers: map[Key]*breaker{}} }

// Ticket is a start that was let through. Tell what became of it, once: Started, Failed or Left.
type Ticket struct {
	Start
	trials []Key
}

func (s Start) keys() []Key {
	keys := []Key{{Host, ""}, {Image, s.Image}}
	if s.User != "" {
		keys = append(keys, Key{User, s.User})
	}
	return keys
}

// Admit lets a start through, or refuses it with Unavailable: until when, and why. The first one after that time is the trial.
func (s *Set) Admit(now time.Time, start Start) (*Ticket, error) {
	t := &Ticket{Start: start}
	for _, key := range start.keys() {
		b := s.breakers[key]
		switch {
		case b == nil:
		case now.Before(b.until):
			return nil, refused(key, b, fmt.Sprintf("until %s", b.until.UTC().Format("15:04:05 UTC")))
		case b.trial:
			return nil, refused(key, b, "while one VM is tried")
		default:
			t.trials = append(t.trials, key)
		}
	}
	for _, key := range t.trials {
		s.breakers[key].trial = true
	}
	return t, nil
}

func refused(key Key, b *breaker, when string) error {
	return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeBackedOff, Message: fmt.Sprintf("%s backs off %s: its VMs failed to start; the last one: %s", key, when, b.last),
		Hint: "mend what the last one says; `grange host show` lists what backs off"}
}

// Started closes what the VM proves sound: its image, its user, the host. Healed tells whether the host was open until now.
func (s *Set) Started(now time.Time, t *Ticket) (healed bool) {
	s.worked = now
	healed = s.breakers[Key{Host, ""}] != nil
	for _, key := range t.keys() {
		delete(s.breakers, key)
	}
	s.failures = slices.DeleteFunc(s.failures, func(f failure) bool { return f.host || f.Image == t.Image || f.User == t.User && t.User != "" })
	return healed
}

// Left gives a ticket back whose start came to nothing through nobody's fault: the caller went away.
func (s *Set) Left(t *Ticket) {
	for _, key := range t.trials {
		if b := s.breakers[key]; b != nil {
			b.trial = false
		}
	}
}

// Failed counts a start that failed, and returns what opened, or stays open longer.
func (s *Set) Failed(now time.Time, t *Ticket, blame Blame, text string) (opened []Key) {
	if blame == Nobody {
		s.Left(t)
		return nil
	}
	for _, key := range t.trials {
		if b := s.breakers[key]; b != nil {
			b.trial, b.last = false, text
			b.length = min(2*b.length, s.settings.Most)
			b.until = now.Add(b.length)
			opened = append(opened, key)
		}
	}
	if len(opened) > 0 {
		return opened
	}
	s.failures = append(s.failures, failure{t.Start, now, blame == TheHost, text})
	s.failures = slices.DeleteFunc(s.failures, func(f failure) bool { return now.Sub(f.at) > s.settings.Window })
	key, ok := s.culprit(t.Start)
	if !ok {
		return nil
	}
	s.breakers[key] = &breaker{until: now.Add(s.settings.First), length: s.settings.First, last: text, since: now}
	s.failures = slices.DeleteFunc(s.failures, func(f failure) bool {
		return key.Kind == Host || key.Kind == Image && f.Image == key.Name || key.Kind == User && f.User == key.Name
	})
	return []Key{key}
}

// culprit is what fails: the host where several images do, or where it surely is the host; an image where it does for several users;
// a user where nobody else is seen to fail with that image. The site itself is nobody to blame.
func (s *Set) culprit(start Start) (Key, bool) {
	images, users := map[string]bool{}, map[string]bool{}
	var host, all, image, user int
	for _, f := range s.failures {
		if f.host {
			host++
		}
		if f.at.After(s.worked) { // in a row, whatever it was
			all++
			images[f.Image] = true
		}
		if f.Image == start.Image {
			image++
			users[f.User] = true
		}
		if f.User == start.User {
			user++
		}
	}
	n := s.settings.Failures
	switch {
	case host >= n, all >= n && len(images) > 1:
		return Key{Host, ""}, true
	case image >= n && (len(users) > 1 || start.User == ""):
		return Key{Image, start.Image}, true
	case user >= n && start.User != "":
		return Key{User, start.User}, true
	}
	return Key{}, false
}

// Reopen has the host back off, with its trial due at once: an earlier process found it so.
func (s *Set) Reopen(now time.Time, text string) {
	s.breakers[Key{Host, ""}] = &breaker{until: now, length: s.settings.First, last: text, since: now}
}

// State is an open breaker, for people.
type State struct {
	Key
	Since time.Time // open since
	Until time.Time
	Trial bool // a VM is tried now
	Last  string
}

// Open are all open breakers, the host's first.
func (s *Set) Open() []State {
	var all []State
	for _, key := range slices.SortedFunc(maps.Keys(s.breakers), func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	}) {
		b := s.breakers[key]
		all = append(all, State{key, b.since, b.until, b.trial, b.last})
	}
	return all
}

// HostUntil is when the host may be tried again; ok is false when it is sound.
func (s *Set) HostUntil() (until time.Time, ok bool) {
	b := s.breakers[Key{Host, ""}]
	if b == nil {
		return time.Time{}, false
	}
	return b.until, true
}
