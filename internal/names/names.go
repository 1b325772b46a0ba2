// Package names looks up users and groups in this host's name service: files, SSSD, LDAP, whatever nsswitch.conf lists.
// A static program that asks package os/user reads /etc/passwd and /etc/group alone, and a rule by name would pass over
// everybody else; so getent(1) is run, which every libc has.
package names

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// User is one entry of the database passwd.
type User struct {
	Name, Home string
	UID, GID   uint32
}

// ErrUnknown is the error for what the name service does not have. It is no proof that nobody has it: getent ends in
// the same way when SSSD is down. So it must never let through what a name would have refused.
var ErrUnknown = errors.New("the host's name service does not have it")

const (
	limit   = 10 * time.Second // a client of SSSD would wait for five minutes
	fresh   = time.Minute
	again   = 5 * time.Second // after a failure
	atOnce  = 4               // programs
	missing = 2               // getent's status when a key was not found

	mostKeys   = 1024    // of one program: a process may have 65,536 groups
	mostGroups = 1 << 16 // that are kept
)

// Service is a name service. What it answered it knows for a minute, and a failure for some seconds, so that a hundred
// tasks of one job are one question.
type Service struct {
	run    program.Run
	asking chan struct{} // as many as ask

	mu     sync.Mutex
	known  map[string]*reply
	groups map[string]group // by number
}

// group is what the name service said of one group.
type group struct {
	gid  uint32
	name string // "": it has none
	at   time.Time
}

type reply struct {
	lines [][]string // fields of each entry
	err   error
	at    time.Time
	done  chan struct{} // closed when the above are there
}

// New returns the name service that run's getent answers for; program.Start outside of tests.
func New(run program.Run) *Service {
	return &Service{run: run, asking: make(chan struct{}, atOnce), known: map[string]*reply{}}
}

// Host is the name service of this host.
var Host = sync.OnceValue(func() *Service { return New(program.Start) })

// User returns the user with a number. Its error is ErrUnknown or a *farm.Error with CodeNoNames.
func (s *Service) User(ctx context.Context, uid uint32) (User, error) {
	return s.user(ctx, number(uid), func(u User) bool { return u.UID == uid })
}

// Named returns the user of a name. Its errors are those of User.
func (s *Service) Named(ctx context.Context, name string) (User, error) {
	// getent would take it for a number, or for an option
	if _, err := strconv.ParseUint(name, 10, 64); err == nil || name == "" || name[0] == '-' {
		return User{}, ErrUnknown
	}
	return s.user(ctx, name, func(u User) bool { return u.Name == name })
}

// Users returns those of some users that the name service has. Its error has CodeNoNames.
func (s *Service) Users(ctx context.Context, uids []uint32) (found []User, err error) {
	keys := make([]string, 0, len(uids))
	for _, uid := range uids {
		keys = append(keys, number(uid))
	}
	lines, err := s.ask(ctx, "passwd", keys...)
	if errors.Is(err, ErrUnknown) {
		return nil, nil
	}
	for _, f := range lines {
		u, err := userOf(f)
		if err != nil {
			return nil, failed("passwd", f[0], err)
		}
		if slices.Contains(uids, u.UID) {
			found = append(found, u)
		}
	}
	return found, err
}

func (s *Service) user(ctx context.Context, key string, is func(User) bool) (User, error) {
	lines, err := s.ask(ctx, "passwd", key)
	if err != nil {
		return User{}, err
	}
	for _, f := range lines {
		if u, err := userOf(f); err != nil {
			return User{}, failed("passwd", key, err)
		} else if is(u) {
			return u, nil
		}
	}
	return User{}, ErrUnknown
}

func userOf(f []string) (User, error) {
	const fields = 7
	if len(f) != fields {
		return User{}, fmt.Errorf("invalid entry: %d fields instead of %d", len(f), fields)
	}
	uid, err := strconv.ParseUint(f[2], 10, 32)
	gid, err2 := strconv.ParseUint(f[3], 10, 32)
	return User{Name: f[0], UID: uint32(uid), GID: uint32(gid), Home: f[5]}, errors.Join(err, err2)
}

// Groups returns the names of groups. Those that the name service does not have are left out. Its error has
// CodeNoNames.
func (s *Service) Groups(ctx context.Context, gids []uint32) (map[uint32]string, error) {
	keys := make([]string, 0, len(gids))
	for _, gid := range gids {
		keys = append(keys, number(gid))
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if len(keys) == 0 {
		return nil, nil
	}
	found := map[uint32]string{}
	for asked := range slices.Chunk(s.unknown(keys, found), mostKeys) {
		if err := s.askGroups(ctx, asked, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// unknown returns those keys of groups that were not asked lately, and adds the names of the others.
func (s *Service) unknown(keys []string, found map[uint32]string) (unknown []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, key := range keys {
		g, ok := s.groups[key]
		if !ok || now.Sub(g.at) > fresh || g.name == "" && now.Sub(g.at) > again {
			unknown = append(unknown, key)
		} else if g.name != "" {
			found[g.gid] = g.name
		}
	}
	return unknown
}

// askGroups asks for some groups, and adds and keeps those that there are: a caller with the same group and others has
// the name at hand.
func (s *Service) askGroups(ctx context.Context, keys []string, found map[uint32]string) error {
	lines, err := s.ask(ctx, "group", keys...)
	if err != nil && !errors.Is(err, ErrUnknown) {
		return err
	}
	now := time.Now()
	answers := map[string]group{}
	for _, key := range keys {
		answers[key] = group{at: now}
	}
	for _, f := range lines {
		const fields = 4
		if len(f) != fields {
			return failed("group", f[0], fmt.Errorf("invalid entry: %d fields instead of %d", len(f), fields))
		}
		gid, err := strconv.ParseUint(f[2], 10, 32)
		if err != nil {
			return failed("group", f[0], err)
		}
		found[uint32(gid)] = f[0]
		answers[f[2]] = group{uint32(gid), f[0], now}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups == nil || len(s.groups) > mostGroups {
		s.groups = map[string]group{}
	}
	maps.Copy(s.groups, answers)
	return nil
}

// GroupsOf returns the groups that the name service gives a user, the user's own among them. Its error has CodeNoNames.
func (s *Service) GroupsOf(ctx context.Context, u User) ([]uint32, error) {
	lines, err := s.ask(ctx, "initgroups", u.Name)
	if err != nil && !errors.Is(err, ErrUnknown) {
		return nil, err
	}
	gids := []uint32{u.GID}
	for _, f := range lines {
		fields := strings.Fields(strings.TrimPrefix(f[0], u.Name)) // a name may have blanks
		for _, field := range fields {
			gid, err := strconv.ParseUint(field, 10, 32)
			if err != nil {
				return nil, failed("initgroups", u.Name, fmt.Errorf("invalid group %q", field))
			}
			gids = append(gids, uint32(gid))
		}
	}
	return gids, nil
}

// Knows reports whether the name service has a user, as far as it was asked lately. It does not ask.
func (s *Service) Knows(uid uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.known["passwd "+number(uid)]
	if !ok {
		return false
	}
	select {
	case <-r.done:
		return r.err == nil
	default:
		return false
	}
}

// Mine is the name of the user that this process runs as; "" where it has none, or nobody knows.
func (s *Service) Mine() string {
	u, err := s.User(context.Background(), uint32(os.Getuid()))
	if err != nil {
		return ""
	}
	return u.Name
}

func (s *Service) ask(ctx context.Context, database string, keys ...string) ([][]string, error) {
	key := database + " " + strings.Join(keys, " ")
	s.mu.Lock()
	s.dropLocked(time.Now())
	r, ok := s.known[key]
	if !ok {
		r = &reply{done: make(chan struct{})}
		s.known[key] = r
		go s.fetch(r, database, keys)
	}
	s.mu.Unlock()
	select {
	case <-r.done:
		return r.lines, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// fetch runs getent. Waiting for others is part of the time it may take, and whoever asked first is not the only one
// who waits.
func (s *Service) fetch(r *reply, database string, keys []string) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	defer close(r.done)
	defer func() { r.at = time.Now() }()
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		r.err = failed(database, keys[0], context.Cause(ctx))
		return
	}
	out, err := s.run(ctx, program.Call{Path: "getent", Args: append([]string{database}, keys...), Limit: limit})
	ended := new(program.Failed)
	none := errors.As(err, &ended) && ended.Status == missing
	if err != nil && !none {
		r.err = failed(database, keys[0], err)
		return
	}
	for line := range strings.Lines(string(out)) {
		r.lines = append(r.lines, strings.Split(strings.TrimSuffix(line, "\n"), ":"))
	}
	if none && len(r.lines) == 0 {
		r.err = ErrUnknown
	}
}

func (s *Service) dropLocked(now time.Time) {
	for key, r := range s.known {
		select {
		case <-r.done:
			if age := now.Sub(r.at); age > fresh || r.err != nil && age > again {
				delete(s.known, key)
			}
		default:
		}
	}
}

func failed(database, key string, err error) error {
	return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeNoNames, Err: err,
		Message: fmt.Sprintf("the host's name service does not say who %s %s is", what[database], key),
		Hint: fmt.Sprintf("`getent %s %s` on this host must answer: see /etc/nsswitch.conf, and SSSD where it is "+
			"named there", database, key)}
}

var what = map[string]string{"passwd": "user", "group": "group", "initgroups": "user"}

func number(id uint32) string { return strconv.FormatUint(uint64(id), 10) }
