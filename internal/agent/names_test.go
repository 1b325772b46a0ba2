package agent

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/program"
)

const denyByName = `
[[policy]]
name = "banned"
users = ["dora"]
deny = "see the security team"
[[policy]]
name = "interns"
groups = ["interns"]
deny = "not yet"
`

const denyByNumber = `
[[policy]]
name = "banned"
users = ["70001"]
groups = ["7001"]
deny = "see the security team"
`

// ldap is a name service with users that no file has.
func ldap(_ context.Context, c program.Call) ([]byte, error) {
	has := map[string]string{"passwd 70001": "dora:*:70001:7000::/nfs/dora:/bin/sh\n",
		"passwd 70002": "erik:*:70002:7000::/nfs/erik:/bin/sh\n", "group 7000": "cms:*:7000:\n",
		"group 7001": "interns:*:7001:\n"}
	out, failed := "", error(nil)
	for _, key := range c.Args[1:] {
		line, ok := has[c.Args[0]+" "+key]
		if out += line; !ok {
			failed = &program.Failed{Status: 2}
		}
	}
	return []byte(out), failed
}

// TestRulesByName: a rule by name holds for users whom no file of the host has, and whoever cannot be looked up is
// refused.
func TestRulesByName(t *testing.T) {
	// as with SSSD down
	down := func(context.Context, program.Call) ([]byte, error) { return nil, &program.Failed{Status: 2} }
	broken := func(context.Context, program.Call) ([]byte, error) { return nil, errors.New("no answer") }
	dora, erik := Caller{UID: 70001, GID: 7000}, Caller{UID: 70002, GID: 7000}
	intern := Caller{UID: 70002, GID: 7000, Groups: []uint32{7000, 7001}}
	tracked := Caller{UID: 70002, GID: 7000, Groups: []uint32{20001},
		Batch: farm.Allotment{System: farm.GridEngine, Job: "1", Group: 20001}}
	odd := Caller{UID: 70002, GID: 7000, Groups: []uint32{20001}}
	for name, c := range map[string]struct {
		run    program.Run
		rules  string
		caller Caller
		want   farm.Code
	}{
		"denied by user":          {ldap, denyByName, dora, farm.CodePolicy},
		"denied by group":         {ldap, denyByName, intern, farm.CodePolicy},
		"let through":             {ldap, denyByName, erik, ""},
		"a batch system's group":  {ldap, denyByName, tracked, ""},
		"a group without a name":  {ldap, denyByName, odd, farm.CodeNoNames},
		"a user without a name":   {ldap, denyByName, Caller{UID: 9999, GID: 7000}, farm.CodeNoNames},
		"name service down":       {down, denyByName, dora, farm.CodeNoNames},
		"name service broken":     {broken, denyByName, erik, farm.CodeNoNames},
		"by number, without name": {down, denyByNumber, erik, ""},
		"by number, denied":       {down, denyByNumber, Caller{UID: 70001, GID: 7001}, farm.CodePolicy},
	} {
		t.Run(name, func(t *testing.T) {
			a := testAgent(t, c.rules)
			a.names = names.New(c.run)
			_, err := a.requests().decide(c.caller, &api.JobRequest{})
			if c.want == "" && err != nil || c.want != "" && !farm.IsCode(err, c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestGuestUser: a job's user in the VM has the names that the name service has.
func TestGuestUser(t *testing.T) {
	a := testAgent(t, "")
	a.names = names.New(ldap)
	for _, c := range []struct {
		caller           Caller
		home             string
		name, at, groups string
	}{
		{Caller{UID: 70001, GID: 7000, Groups: []uint32{7001, 7000, 12}}, "/elsewhere", "dora", "/nfs/dora",
			"cms interns g12"},
		{Caller{UID: 9, GID: 12}, "/home/nine", "u9", "/home/nine", "g12"},
		{Caller{UID: 9, GID: 12}, "relative", "u9", "/tmp", "g12"},
		{Caller{UID: 9, GID: 12}, "/a:b", "u9", "/tmp", "g12"},
	} {
		known, err := a.requests().namesOf(c.caller)
		if err != nil {
			t.Fatal(err)
		}
		u := known.guestUser(c.caller, c.home)
		var groups []string
		for _, g := range u.Groups {
			groups = append(groups, g.Name)
		}
		if u.Name != c.name || u.Home != c.at || strings.Join(groups, " ") != c.groups || u.UID != c.caller.UID ||
			u.GID != c.caller.GID {
			t.Errorf("%+v", u)
		}
	}
	a.names = names.New(func(context.Context, program.Call) ([]byte, error) { return nil, errors.New("no answer") })
	if _, err := a.requests().namesOf(Caller{UID: 70001}); !farm.IsCode(err, farm.CodeNoNames) {
		t.Error(err)
	}
}

// TestWorkersByName: whom [worker] users names is looked up as well.
func TestWorkersByName(t *testing.T) {
	a := testAgent(t, "")
	a.cfg.Worker.Users = []string{"dora"}
	a.names = names.New(ldap)
	if err := a.workerDesk.mayWork(Caller{UID: 70001}); err != nil {
		t.Error(err)
	}
	for _, uid := range []uint32{70002, 9} {
		if err := a.workerDesk.mayWork(Caller{UID: uid}); !farm.IsCode(err, farm.CodeNotYours) {
			t.Errorf("%d: %v", uid, err)
		}
	}
	a.names = names.New(func(context.Context, program.Call) ([]byte, error) { return nil, errors.New("no answer") })
	if err := a.workerDesk.mayWork(Caller{UID: 70001}); !farm.IsCode(err, farm.CodeNoNames) {
		t.Error(err)
	}
}
