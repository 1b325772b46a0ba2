package accounts

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
)

// Explain returns why a user ("": the caller) may or may not do something. The target is "project:NAME", "cell:NAME",
// "host:NAME", "vm:PROJECT/NAME", "user:NAME" or "". What the caller may not see is explained by its name alone.
func (s *Accounts) Explain(ctx context.Context, who farm.Identity, user string, act policy.Action,
	target string) (access policy.Access, err error) {
	if !slices.Contains(policy.Actions(), act) {
		return access, &farm.Error{Kind: farm.NotFound, Code: CodeNoAction,
			Message: fmt.Sprintf("no action %.80q", act), Hint: "there are " + actionWords()}
	}
	err = s.actions.Look(ctx, who, policy.ReadUser, func(c *action.Call) error {
		t, err := explained(c, target)
		if err != nil {
			return err
		}
		if user == "" || user == who.User {
			access = policy.Allow(who, c.Grants, act, t)
			return nil
		}
		if err := c.May(userTarget(user)); err != nil {
			return err
		}
		u, err := findUser(c, user)
		if err != nil {
			return err
		}
		if u.Disabled {
			access = policy.Access{Why: []string{"user " + user + " is disabled, and is not let in at all"}}
			return nil
		}
		grants, err := c.Tx.Grants(user)
		access = policy.Allow(farm.Identity{User: user, Means: "certificate"}, grants, act, t)
		return err
	})
	return access, err
}

func actionWords() string {
	var words []string
	for _, a := range policy.Actions() {
		words = append(words, string(a))
	}
	return strings.Join(words, ", ")
}

// explained is what a target's text means.
func explained(c *action.Call, text string) (policy.Target, error) {
	if text == "" {
		return policy.Target{}, nil
	}
	kind, name, ok := strings.Cut(text, ":")
	if !ok || name == "" {
		kind = ""
	}
	switch kind {
	case "project":
		return policy.Target{Project: name}, nil
	case "cell":
		return policy.Target{Cell: name}, nil
	case "user":
		return userTarget(name), nil
	case "vm":
		return explainedVM(c, name)
	case "host":
		h, err := c.HostNamed(name)
		if action.Missing(err) || err == nil && !policy.Allow(c.Who, c.Grants, policy.ReadHost,
			action.HostTarget(h)).Allowed {
			return policy.Target{Name: farm.Printable("host " + name)}, nil
		}
		return action.HostTarget(h), err
	}
	return policy.Target{}, &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage,
		Message: fmt.Sprintf("invalid target %.80q", text),
		Hint:    "write project:NAME, cell:NAME, host:NAME, vm:PROJECT/NAME or user:NAME, or leave it out"}
}

func explainedVM(c *action.Call, ref string) (policy.Target, error) {
	project, name, _ := strings.Cut(ref, "/")
	vm, err := c.VMNamed(project, name)
	if action.Missing(err) || err == nil && !c.Sees(vm) {
		return policy.Target{Project: project, Name: farm.Printable("VM " + ref)}, nil
	}
	return action.VMTarget(vm), err
}
