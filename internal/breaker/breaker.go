// Package breaker decides when an image, a user or a host whose VMs keep failing to start backs off, for how long, and
// when it is tried again. It is pure: whoever asks brings the time, and tells what became of each VM.
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

// Defaults hold off what fails all the time and leave alone what fails now and then: three in a row are one in a
// thousand where one in ten fails.
var Defaults = Settings{Failures: 3, Window: 15 * time.Minute, First: time.Minute, Most: time.Hour}

// Start is an attempt to start a VM. One of the site itself, as a batch system's node, has no user. One of the agent's
// own is for nobody: it shows whether the host is sound, and no user can bring it about.
type Start struct {
	Image, User string
	Own         bool
	// the name service does not know the user, who may be one of many that an account makes: that such users fail as
	// well says nothing of image or host
	Nameless bool
	// the caller is not told why VMs failed that may be others'
	Private bool
}

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
	suspect  failure   // the newest that may be the host's, with one user as the only witness; zero: none
	last     breaker   // the host's, when it was closed last; until is that time
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

var host = Key{Host, ""}

// keys are the breakers that may refuse a start.
func (s Start) keys() []Key {
	if s.Own {
		return []Key{host}
	}
	keys := []Key{host, {Image, s.Image}}
	if s.User != "" {
		keys = append(keys, Key{User, s.User})
	}
	return keys
}

// Admit lets a start through, or refuses it with Unavailable: until when, and why. The first one after that time is the
// trial; the host's trial is a VM of the agent's own, for a user who has VMs fail would be the first to try again.
func (s *Set) Admit(now time.Time, start Start) (*Ticket, error) {
	t := &Ticket{Start: start}
	for _, key := range start.keys() {
		b := s.breakers[key]
		switch {
		case b == nil:
		case now.Before(b.until):
			return nil, refused(start, key, b, fmt.Sprintf("until %s", b.until.UTC().Format("15:04:05 UTC")))
		case b.trial:
			return nil, refused(start, key, b, "while one VM is tried")
		case key == host && !start.Own:
			return nil, refused(start, key, b, "until a VM of the agent's own has started")
		default:
			t.trials = append(t.trials, key)
		}
	}
	for _, key := range t.trials {
		s.breakers[key].trial = true
	}
	return t, nil
}

func refused(start Start, key Key, b *breaker, when string) error {
	if start.Private && key.Kind != User {
		return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeBackedOff,
			Message: fmt.Sprintf("%s backs off %s: its VMs failed to start", key, when),
			Hint:    "try again then, or ask root: `grange host show` says why"}
	}
	return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeBackedOff,
		Message: fmt.Sprintf("%s backs off %s: its VMs failed to start; the last one: %s", key, when, b.last),
		Hint:    "mend what the last one says; `grange host show` lists what backs off"}
}

// Started closes what the VM proves sound: its image, its user, and if it is the agent's own, the host. It reports
// whether the host was open until now.
func (s *Set) Started(now time.Time, t *Ticket) (healed bool) {
	s.worked = now
	if t.Own {
		s.suspect = failure{}
		healed = s.closeHost(now)
	}
	delete(s.breakers, Key{Image, t.Image})
	delete(s.breakers, Key{User, t.User})
	s.failures = slices.DeleteFunc(s.failures, func(f failure) bool {
		return f.host || f.Image == t.Image ||
			f.User == t.User && t.User != ""
	})
	return healed
}

// Untested is for a host that has nothing of its own to try: it closes when its time is over, and users' VMs show how
// it is. It reports whether the host was open until now.
func (s *Set) Untested(now time.Time) (closed bool) {
	s.suspect = failure{}
	if b := s.breakers[host]; b == nil || now.Before(b.until) {
		return false
	}
	return s.closeHost(now)
}

func (s *Set) closeHost(now time.Time) bool {
	b := s.breakers[host]
	if b == nil {
		return false
	}
	s.last = *b
	s.last.until = now
	delete(s.breakers, host)
	return true
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
	if t.Own {
		s.suspect = failure{}
		s.open(host, now, text)
		return []Key{host}
	}
	f := failure{t.Start, now, blame == TheHost, text}
	s.failures = append(s.failures, f)
	s.failures = slices.DeleteFunc(s.failures, func(f failure) bool { return now.Sub(f.at) > s.settings.Window })
	key, ok, suspected := s.culprit(t.Start)
	if suspected {
		s.suspect = f
	}
	if !ok || s.breakers[key] != nil { // of a start from before it opened
		return nil
	}
	s.open(key, now, text)
	return []Key{key}
}

// open has something back off that did not until now. A host that was found sound a moment ago goes on where it was.
func (s *Set) open(key Key, now time.Time, text string) {
	length := s.settings.First
	if key == host && s.last.length > 0 && now.Sub(s.last.until) < s.settings.Window {
		length = min(2*s.last.length, s.settings.Most)
	}
	s.breakers[key] = &breaker{until: now.Add(length), length: length, last: text, since: now}
	s.failures = slices.DeleteFunc(s.failures, func(f failure) bool {
		return key == host || key.Kind == Image && f.Image == key.Name || key.Kind == User && f.User == key.Name
	})
}

// culprit is what fails: the host where several images do, or where it surely is the host, and several users saw it; an
// image where it does for several users; a user where nobody else is seen to fail with that image. The site itself is
// nobody to blame. suspected: it would be the host, were there more than one user to say so, for one alone may bring
// failures about.
func (s *Set) culprit(start Start) (key Key, ok, suspected bool) {
	images, users, witnesses, sure := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	var hosts, all, image, user int
	for _, f := range s.failures {
		if f.host {
			hosts++
			f.witness(sure)
		}
		if f.at.After(s.worked) { // in a row, whatever it was
			all++
			images[f.Image] = true
			f.witness(witnesses)
		}
		if f.Image == start.Image {
			image++
			f.witness(users)
		}
		if f.User == start.User {
			user++
		}
	}
	n := s.settings.Failures
	surely, likely := hosts >= n, all >= n && len(images) > 1
	if surely && len(sure) > 1 || likely && len(witnesses) > 1 {
		return host, true, false
	}
	suspected = surely || likely
	switch {
	case image >= n && (len(users) > 1 || start.User == ""):
		return Key{Image, start.Image}, true, suspected
	case user >= n && start.User != "":
		return Key{User, start.User}, true, suspected
	}
	return Key{}, false, suspected
}

// witness adds the user of a failure to those who saw it, where the name service knows the user.
func (f failure) witness(users map[string]bool) {
	if !f.Nameless {
		users[f.User] = true
	}
}

// Reopen has the host back off, with its trial due at once: an earlier process found it so.
func (s *Set) Reopen(now time.Time, text string) {
	s.breakers[host] = &breaker{until: now, length: s.settings.First, last: text, since: now}
}

// State is an open breaker, for people.
type State struct {
	Key
	Since time.Time // open since
	Until time.Time
	Trial bool // a VM is tried now
	Last  string
}

func (b *breaker) state(key Key) State { return State{key, b.since, b.until, b.trial, b.last} }

// Open are all open breakers, the host's first.
func (s *Set) Open() []State {
	var all []State
	for _, key := range slices.SortedFunc(maps.Keys(s.breakers), func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	}) {
		all = append(all, s.breakers[key].state(key))
	}
	return all
}

// TrialDue reports whether a VM of the agent's own should be tried now: the host's time is over, or the host is
// suspected.
func (s *Set) TrialDue(now time.Time) bool {
	if b := s.breakers[host]; b != nil {
		return !now.Before(b.until) && !b.trial
	}
	return !s.suspect.at.IsZero() && now.Sub(s.suspect.at) <= s.settings.Window
}

// Host returns the host's breaker, and reports whether it is open.
func (s *Set) Host() (State, bool) {
	b := s.breakers[host]
	if b == nil {
		return State{}, false
	}
	return b.state(host), true
}
