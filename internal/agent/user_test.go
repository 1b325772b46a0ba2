package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/program"
)

// directory is a name service with lisa, of the groups students and chess, and the accounts of others.
func directory(_ context.Context, c program.Call) ([]byte, error) {
	has := map[string]string{"passwd 1001": "lisa:x:1001:1002::/home/lisa:/bin/sh\n",
		"passwd lisa":     "lisa:x:1001:1002::/home/lisa:/bin/sh\n",
		"passwd 150000":   "kim:x:150000:7000::/nfs/kim:/bin/sh\n",
		"initgroups lisa": "lisa                  5001 5002\n", "initgroups kim": "kim\n",
		"group 1002": "lisa:x:1002:\n", "group 5001": "students:x:5001:lisa\n", "group 5002": "chess:x:5002:lisa\n",
		"group 7000": "physics:x:7000:\n"}
	out, failed := "", error(nil)
	for _, key := range c.Args[1:] {
		line, ok := has[c.Args[0]+" "+key]
		if out += line; !ok {
			failed = &program.Failed{Status: 2}
		}
	}
	return []byte(out), failed
}

// hasSubids gives an agent's host lists of subordinate IDs.
func hasSubids(t *testing.T, a *Agent, users, sources string) {
	t.Helper()
	a.subids.Root = t.TempDir()
	etc := filepath.Join(a.subids.Root, "etc")
	if err := os.Mkdir(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"subuid": users, "subgid": users, "nsswitch.conf": sources} {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	denyStudents = "[[policy]]\nname = \"students\"\ngroups = [\"students\"]\ndeny = \"not yet\"\n"
	denyGID      = "[[policy]]\nname = \"students\"\ngroups = [\"5001\"]\ndeny = \"not yet\"\n"
	denyLisa     = "[[policy]]\nname = \"lisa\"\nusers = [\"lisa\"]\ndeny = \"not yet\"\n"
	denyUID      = "[[policy]]\nname = \"lisa\"\nusers = [\"1001\"]\ndeny = \"not yet\"\n"
	denyNobody   = "[[policy]]\nname = \"others\"\nusers = [\"5\"]\ndeny = \"not yet\"\n"
)

// TestRulesHoldForSubordinateIDs: an account is denied what its rule denies, by whatever of its IDs it calls, and
// whichever of its groups it has dropped.
func TestRulesHoldForSubordinateIDs(t *testing.T) {
	const lists = "lisa:100000:65536\nroot:1000000:65536\ngone:2000000:10\n3003:3000000:10\n"
	namespace := Caller{UID: 100005, GID: 100005, Owner: 1001}
	file := Caller{UID: 100005, GID: 1002}
	dropped := Caller{UID: 1001, GID: 1002, Owner: 1001}
	otherGID := Caller{UID: 1001, GID: 100009, Owner: 1001}
	unknown := Caller{UID: 2000001, GID: 1002}
	for name, c := range map[string]struct {
		caller Caller
		rules  string
		want   farm.Code
	}{
		"a user namespace, by group":        {namespace, denyStudents, farm.CodePolicy},
		"a user namespace, by group number": {namespace, denyGID, farm.CodePolicy},
		"a user namespace, by name":         {namespace, denyLisa, farm.CodePolicy},
		"a user namespace, by number":       {namespace, denyUID, farm.CodePolicy},
		"a set-user-ID file, by group":      {file, denyStudents, farm.CodePolicy},
		"a set-user-ID file, by name":       {file, denyLisa, farm.CodePolicy},
		"a set-user-ID file, by number":     {file, denyUID, farm.CodePolicy},
		"dropped groups, by group":          {dropped, denyStudents, farm.CodePolicy},
		"dropped groups, by group number":   {dropped, denyGID, farm.CodePolicy},
		"a subordinate group, by group":     {otherGID, denyStudents, farm.CodePolicy},
		"nobody's range, by number":         {unknown, denyUID, farm.CodeNoNames},
		"nobody's range, by group number":   {unknown, denyGID, farm.CodeNoNames},
		"an account without a name":         {Caller{UID: 3000001, GID: 1002}, denyUID, farm.CodeNoNames},
		"a container of root, by number":    {Caller{UID: 1000005, GID: 1000005}, denyUID, ""},
		"an account in another's range":     {Caller{UID: 150000, GID: 7000}, denyLisa, ""},
		"an account that no rule is for":    {Caller{UID: 150000, GID: 7000}, denyStudents, ""},
		"a subordinate ID, of no rule":      {namespace, denyNobody, ""},
		"nobody's range, without rules":     {unknown, "", ""},
		"a subordinate group, by its number": {otherGID, strings.ReplaceAll(denyGID, "5001", "100009"),
			farm.CodePolicy},
	} {
		t.Run(name, func(t *testing.T) {
			a := testAgent(t, c.rules)
			a.names = names.New(directory)
			hasSubids(t, a, lists, "")
			caller, err := c.caller.withOwner(a)
			if err == nil {
				_, err = a.requests().decide(caller, &api.JobRequest{})
			}
			if c.want == "" && err != nil || c.want != "" && !farm.IsCode(err, c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestRulesWhereListsAreElsewhere: where subordinate IDs are not in files, IDs without a name pass no rule, and count
// together.
func TestRulesWhereListsAreElsewhere(t *testing.T) {
	for sources, want := range map[string]farm.Code{"subid: sss\n": farm.CodeNoNames, "subid: files\n": "", "": ""} {
		a := testAgent(t, denyUID)
		a.names = names.New(directory)
		hasSubids(t, a, "", sources)
		c, err := Caller{UID: 2147483700, GID: 7000}.withOwner(a)
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.requests().decide(c, &api.JobRequest{})
		if want == "" && err != nil || want != "" && !farm.IsCode(err, want) {
			t.Errorf("%q: %v, want %q", sources, err, want)
		}
		if c.share(a) != together {
			t.Error("a high ID without a name counts alone")
		}
	}
}

// TestNameServiceDownForSubordinateIDs: whose ID it is cannot be known, and the caller is refused.
func TestNameServiceDownForSubordinateIDs(t *testing.T) {
	a := testAgent(t, "")
	a.names = names.New(func(context.Context, program.Call) ([]byte, error) { return nil, errors.New("no answer") })
	hasSubids(t, a, "lisa:100000:65536\n", "")
	if c, err := (Caller{UID: 100005}).withOwner(a); !farm.IsCode(err, farm.CodeNoNames) {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := (Caller{UID: 1001}).withOwner(a); err != nil {
		t.Errorf("an account without subordinate IDs: %v", err)
	}
}

// TestWhomCallersCountFor: all IDs of an account are one user.
func TestWhomCallersCountFor(t *testing.T) {
	a := testAgent(t, "")
	a.names = names.New(directory)
	hasSubids(t, a, "lisa:100000:65536\n1001:400000:10\nroot:1000000:65536\ngone:20000:10\n", "")
	for _, c := range []struct {
		caller Caller
		want   uint32
	}{
		{Caller{UID: 1001}, 1001}, {Caller{UID: 100000}, 1001}, {Caller{UID: 165535}, 1001},
		{Caller{UID: 400003}, 1001},
		{Caller{UID: 61001}, 61001}, {Caller{UID: 150000}, 150000}, {Caller{UID: 0}, 0},
		{Caller{UID: 777777, Owner: 1001}, 1001}, {Caller{UID: 100007, Owner: 100005}, 1001},
		{Caller{UID: 1000005}, together}, {Caller{UID: 165536}, together}, {Caller{UID: 20005}, together},
	} {
		got, err := c.caller.withOwner(a)
		if err != nil {
			t.Fatal(err)
		}
		if share := got.share(a); share != c.want {
			t.Errorf("%+v counts for %d, want %d", c.caller, share, c.want)
		}
	}
	party := accounts(a).Party
	first, second := party(100001, 0), party(165000, 0)
	if first != second || party(100001, 1001) != 1001 || party(61001, 0) != 61001 ||
		party(1000001, 0) != party(1000002, 0) {
		t.Errorf("connections count for %d and %d", first, second)
	}
}

// TestRightsOfSubordinateIDs: an account has rights on what its subordinate IDs started, and they have none on what it
// started, or another one of them.
func TestRightsOfSubordinateIDs(t *testing.T) {
	lisa, sub, other := Caller{UID: 1001}, Caller{UID: 100005, Owner: 1001}, Caller{UID: 100006, Owner: 1001}
	kim := Caller{UID: 150000}
	for _, c := range []struct {
		who, of Caller
		may     bool
	}{{lisa, lisa, true}, {lisa, sub, true}, {sub, sub, true}, {sub, lisa, false}, {sub, other, false},
		{kim, sub, false}, {Caller{UID: 1001, Owner: 1001}, lisa, true}} {
		if c.who.owns(c.of) != c.may {
			t.Errorf("%d has rights on what %d started: %v", c.who.UID, c.of.UID, !c.may)
		}
	}
}

// TestJobsOfSubordinateIDs: limits of a user's jobs hold for all IDs of an account together.
func TestJobsOfSubordinateIDs(t *testing.T) {
	a := testAgent(t, testShapes)
	for i := range a.mostJobs() {
		j := newJob(a, api.NewID(), Caller{UID: uint32(100000 + i), Owner: 1001})
		a.live[j.id] = j
	}
	for uid, want := range map[uint32]farm.Code{1001: farm.CodeTooManyJobs, 1002: ""} {
		err := a.roomForLocked(newJob(a, api.NewID(), Caller{UID: uid}), a.mostJobs())
		if want == "" && err != nil || want != "" && !farm.IsCode(err, want) {
			t.Errorf("%d: %v", uid, err)
		}
	}
}

// TestGuestUserOfSubordinateID: a job runs as the ID that its caller has, and is shown as the account's.
func TestGuestUserOfSubordinateID(t *testing.T) {
	a := testAgent(t, "")
	a.names = names.New(directory)
	hasSubids(t, a, "lisa:100000:65536\n", "")
	c, err := Caller{UID: 100005, GID: 100005}.withOwner(a)
	if err != nil {
		t.Fatal(err)
	}
	known, err := a.requests().namesOf(c)
	if err != nil {
		t.Fatal(err)
	}
	u := known.guestUser(c, "/home/lisa")
	if u.UID != 100005 || u.GID != 100005 || u.Name != "u100005" || fmt.Sprint(u.Groups) != "[{g100005 100005}]" {
		t.Errorf("%+v", u)
	}
	if shown := known.Shown(); shown != "lisa" {
		t.Errorf("shown as %s", shown)
	}
}
