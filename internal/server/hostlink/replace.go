package hostlink

import (
	"fmt"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// mayJoin holds a join token against the rights that its maker has now: in the token's cell, and in the cell of the
// host that it replaces, which is given the VMs of that host's users.
func (e *enrolment) mayJoin(k farm.JoinToken, old farm.Host) error {
	maker, grants, err := e.maker(k)
	if err != nil {
		return err
	}
	for _, cell := range []string{k.Cell, old.Cell} {
		if cell == "" || policy.Allow(maker, grants, policy.JoinHost, action.CellTarget(cell)).Allowed {
			continue
		}
		return refuseJoin(fmt.Sprintf("%s, who made the join token, may not let hosts join cell %s%s", k.By, cell,
			isIn(old, cell)),
			"have the token made by somebody who may, with the host's name where it replaces one: `grange host token "+
				"create --name`")
	}
	return nil
}

func isIn(old farm.Host, cell string) string {
	if old.Cell != cell {
		return ""
	}
	return ", where host " + old.Name + " is"
}

// maker is who made a token, with the roles of today.
func (e *enrolment) maker(k farm.JoinToken) (farm.Identity, []farm.Grant, error) {
	u, err := e.User(k.By)
	switch {
	case action.Missing(err) && k.By == action.Root:
		return farm.Identity{User: action.Root, Root: true}, nil, nil
	case err != nil && !action.Missing(err):
		return farm.Identity{}, nil, err
	case err != nil || u.Disabled:
		return farm.Identity{}, nil, refuseJoin("user "+k.By+", who made the join token, is disabled or deleted",
			"have a new one made: `grange host token create`")
	}
	grants, err := e.Grants(u.Name)
	return farm.Identity{User: u.Name}, grants, err
}

// replaces decides whether this machine may take the place of a host. It may if it has the key of that host's present
// certificate, or by a token for just that host once that does not report. The machine-id never allows anything: it is
// no secret.
func (e *enrolment) replaces(k farm.JoinToken, old farm.Host) error {
	if !e.r.Replace {
		return &farm.Error{Kind: farm.Conflict, Code: CodeHostExists,
			Message: "a host " + old.Name + " is enrolled already, since " + old.Enrolled.UTC().Format(time.RFC3339),
			Hint: "if it is this machine, installed anew: `--replace`; otherwise give this one another name by " +
				"`--name`"}
	}
	e.proven = e.proves(old)
	another := e.r.MachineID != "" && old.MachineID != "" && e.r.MachineID != old.MachineID
	switch {
	case k.Name == "" && e.proven && another:
		return refuseJoin("this machine has the identity of host "+old.Name+", and another /etc/machine-id than that",
			"if it is a clone, remove its identity and give it a name of its own by `--name`; "+ofItsName(old))
	case k.Name == "" && !e.proven:
		return refuseJoin("to take the place of host "+old.Name+" without its present identity, a join token for "+
			"that host is needed", ofItsName(old))
	case !e.proven:
		return e.links.replaceable(old)
	}
	return nil
}

func ofItsName(h farm.Host) string { return "`grange host token create --name " + h.Name + "`" }

// proves reports whether the connection showed the present certificate of a host: TLS has proven that it has the key.
func (e *enrolment) proves(old farm.Host) bool {
	if e.peer.Name != "" { // of the site's, and of this name
		return old.Serial == pki.SiteSerial
	}
	if len(e.shown) == 0 {
		return false
	}
	peer, err := e.cas.peers.Peer(e.shown, e.now)
	return err == nil && peer.ID == old.ID && (peer.Serial == old.Serial || peer.Serial == old.Before)
}

// replaceable refuses hosts that report: what has their name runs. One that was fenced has a person's word that nothing
// of it does.
func (s *Links) replaceable(old farm.Host) error {
	seen := s.Seen(old)
	switch {
	case !old.Fenced.IsZero(), seen.IsZero(), s.Silent(old):
		return nil
	case s.Now().Sub(seen) > s.Silence:
		return &farm.Error{Kind: farm.Conflict, Code: farm.CodeHostAnswers,
			Message: fmt.Sprintf("this server has just come up, and waits for host %s, which reported at %s", old.Name,
				action.When(seen)), Hint: "try again at " + action.When(s.Since.Add(s.Silence))}
	}
	return &farm.Error{Kind: farm.Conflict, Code: farm.CodeHostAnswers,
		Message: fmt.Sprintf("host %s has reported at %s: it is not replaced while it runs", old.Name,
			action.When(seen)),
		Hint: fmt.Sprintf("on the host itself, keep its identity and run `grange host join --replace`; otherwise "+
			"switch it off, and try again %v later", s.Silence)}
}

// disown marks the VMs of a host as lost that is replaced by a machine which did not prove to be the same one. That
// machine is sent nothing of them, and what it reports of them does not count: it could have their IDs from anywhere.
func (e *enrolment) disown(old farm.Host) error {
	vms, err := e.VMs(store.VMFilter{Host: old.ID})
	if err != nil {
		return err
	}
	const why = "its host was replaced by one that was installed anew"
	for _, vm := range vms {
		o := vm.Observed
		o.State, o.Reason, o.Since, o.Ready, o.Disowned = farm.VMLost, why, e.now, false, true
		if err := e.SetVMObserved(vm.ID, o); err != nil {
			return err
		}
		if err := e.Audit(action.Entry(action.Itself, e.now, action.LostVM, action.VMTarget(vm), action.Done,
			why)); err != nil {
			return err
		}
	}
	streams, err := e.Streams(old.ID)
	if err != nil {
		return err
	}
	for _, o := range streams {
		if err := e.DeleteStream(o.ID); err != nil {
			return err
		}
	}
	return nil
}
