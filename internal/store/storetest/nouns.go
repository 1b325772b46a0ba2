package storetest

import (
	"errors"
	"net/netip"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

func hosts(s *suite) {
	db, h := s.new(), aHost(1)
	h.Revision = s.update(db, func(tx *store.Tx) error { return tx.InsertHost(h) })
	check := func(what string) {
		s.Helper()
		s.view(db, func(tx *store.Tx) error {
			got, err := tx.Host(h.ID)
			same(s, what, h, err, got)
			got, err = tx.HostNamed(h.Name)
			same(s, what+", by name", h, err, got)
			got, err = tx.HostOfMachine(h.MachineID)
			same(s, what+", by machine", h, err, got)
			return nil
		})
	}
	check("inserted")
	other := farm.Host{ID: h.ID, Name: "new-name", Cell: "b9", Labels: map[string]string{"x": "y"}, MachineID: "m9",
		Serial: "2b", Enrolled: noon.Add(time.Hour)}
	h.Revision = s.update(db, func(tx *store.Tx) error { return tx.SetHost(other) })
	other.Facts, other.Kind, other.Seen, other.Clock, other.Revision = h.Facts, h.Kind, h.Seen, h.Clock, h.Revision
	h = other
	check("wanted")
	h.Facts = farm.Facts{Version: "v2", Kind: "other", BatchNode: "rack7-03"}
	h.Kind = "other"
	h.Revision = s.update(db, func(tx *store.Tx) error { return tx.SetHostFacts(h.ID, h.Facts) })
	check("facts")
	s.view(db, func(tx *store.Tx) error {
		brief := h
		brief.Facts, brief.Kind = farm.Facts{BatchNode: h.Facts.BatchNode}, ""
		got, err := tx.HostBrief(h.ID)
		same(s, "without facts", brief, err, got)
		return nil
	})
	same(s, "the same facts again", h.Revision, nil,
		s.update(db, func(tx *store.Tx) error { return tx.SetHostFacts(h.ID, h.Facts) }))

	second := aHost(2)
	second.Revision = s.update(db, func(tx *store.Tx) error { return tx.InsertHost(second) })
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.Hosts("")
		same(s, "all", []farm.Host{second, h}, err, got)
		got, err = tx.Hosts(second.Cell)
		same(s, "of a cell", []farm.Host{second}, err, got)
		return nil
	})
	taken := aHost(3)
	taken.Name = h.Name
	s.fails("name of another", s.in(db, func(tx *store.Tx) error { return tx.InsertHost(taken) }), store.CodeTaken)
	second.Name = h.Name
	s.fails("renamed to another's", s.in(db, func(tx *store.Tx) error { return tx.SetHost(second) }), store.CodeTaken)
	s.update(db, func(tx *store.Tx) error { return tx.DeleteHost(h.ID) })
	for what, do := range map[string]func(*store.Tx) error{
		"deleted": func(tx *store.Tx) error { _, err := tx.Host(h.ID); return err },
		"machine": func(tx *store.Tx) error { _, err := tx.HostOfMachine(h.MachineID); return err },
		"set":     func(tx *store.Tx) error { return tx.SetHost(h) },
		"facts":   func(tx *store.Tx) error { return tx.SetHostFacts(h.ID, h.Facts) },
		"seen":    func(tx *store.Tx) error { return tx.SetHostSeen(h.ID, noon, 0) },
		"delete":  func(tx *store.Tx) error { return tx.DeleteHost(h.ID) },
	} {
		s.fails(what, s.in(db, do), store.CodeAbsent)
	}
}

// hostsSeen: thousands of hosts report, and nobody is woken for that.
func hostsSeen(s *suite) {
	db := s.new()
	before := s.update(db, func(tx *store.Tx) error {
		for n := range 3 {
			if err := tx.InsertHost(aHost(n)); err != nil {
				return err
			}
		}
		return nil
	})
	at := noon.Add(time.Minute)
	if err := db.Saw(s.ctx, []store.Seen{{ID: "h2", At: at, Ahead: time.Second}, {ID: "h0", At: at},
		{ID: "gone", At: at}}); err != nil {
		s.Fatal(err)
	}
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.HostsSeen()
		same(s, "seen", []store.Seen{{ID: "h0", At: at}, {ID: "h1", At: noon, Ahead: aHost(1).Clock},
			{ID: "h2", At: at, Ahead: time.Second}}, err, got)
		same(s, "revision", before, nil, tx.Revision())
		page, err := tx.HostsSeenAfter("h0", 1)
		same(s, "page of seen", []store.Seen{{ID: "h1", At: noon, Ahead: aHost(1).Clock}}, err, page)
		h, err := tx.Host("h2")
		same(s, "seen, in the host", at, err, h.Seen)
		return nil
	})
	s.update(db, func(tx *store.Tx) error { return tx.SetHostSeen("h1", at, time.Hour) })
	changes, _, err := db.Changes(s.ctx, before, 10)
	same(s, "changes", nil, err, changes)
}

// object is one kind of small thing, tried as all of them are.
type object struct {
	kind      store.Kind
	id        string
	put, drop func(*store.Tx) error
	get, list func(*store.Tx) (any, error)
	want      func(revision int64) any
	all       func(revision int64) any
}

func smallThings(s *suite) {
	cell := aCell()
	project := aProject()
	network := aNetwork()
	group := farm.ServerGroup{Project: "p", Name: "apart", Affinity: farm.Apart}
	security := farm.SecurityGroup{Project: "p", Name: "web", Rules: []farm.SecurityRule{{Protocol: farm.TCP,
		Ports: farm.PortRange{First: 22, Last: 22}, CIDR: netip.MustParsePrefix("192.0.2.0/24")}, {Group: "db"}}}
	user := farm.User{Name: "ann", Subjects: []string{"CN=Ann,O=Grid,C=CH"}}
	token := aToken()
	join := aJoinToken()
	stream := store.Stream{ID: "s1", Host: "h1", VM: "id", Kind: "tcp", Port: 22, Server: "https://a", Created: noon}
	grant := farm.Grant{User: "ann", Role: farm.RoleOperator, Project: "p"}
	mapping := farm.Mapping{Issuer: "wlcg", Claim: "groups", Value: "/p", Role: farm.RoleMember, Project: "p"}
	shape := aShape("small")
	for _, o := range []object{
		{store.KindCell, "b1", func(t *store.Tx) error { return t.PutCell(cell) },
			func(t *store.Tx) error { return t.DeleteCell("b1") },
			func(t *store.Tx) (any, error) { return t.Cell("b1") }, func(t *store.Tx) (any, error) { return t.Cells() },
			func(r int64) any { cell.Revision = r; return cell }, func(int64) any { return []farm.Cell{cell} }},
		{store.KindProject, "p", func(t *store.Tx) error { return t.PutProject(project) },
			func(t *store.Tx) error { return t.DeleteProject("p") },
			func(t *store.Tx) (any, error) { return t.Project("p") },
			func(t *store.Tx) (any, error) { return t.Projects() },
			func(r int64) any { project.Revision = r; return project },
			func(int64) any { return []farm.Project{project} }},
		{store.KindShape, "small", func(t *store.Tx) error { return t.PutShape(shape) },
			func(t *store.Tx) error { return t.DeleteShape("small") },
			func(t *store.Tx) (any, error) { return t.Shape("small") },
			func(t *store.Tx) (any, error) { return t.Shapes() }, func(int64) any { return shape },
			func(int64) any { return []farm.Shape{shape} }},
		{store.KindNetwork, "front", func(t *store.Tx) error { return t.PutNetwork(network) },
			func(t *store.Tx) error { return t.DeleteNetwork("front") },
			func(t *store.Tx) (any, error) { return t.Network("front") },
			func(t *store.Tx) (any, error) { return t.Networks() },
			func(r int64) any { network.Revision = r; return network },
			func(int64) any { return []farm.FleetNetwork{network} }},
		{store.KindGroup, "p/apart", func(t *store.Tx) error { return t.PutGroup(group) },
			func(t *store.Tx) error { return t.DeleteGroup("p", "apart") },
			func(t *store.Tx) (any, error) { return t.Group("p", "apart") },
			func(t *store.Tx) (any, error) { return t.Groups("p") },
			func(r int64) any { group.Revision = r; return group },
			func(int64) any { return []farm.ServerGroup{group} }},
		{store.KindSecurityGroup, "p/web", func(t *store.Tx) error { return t.PutSecurityGroup(security) },
			func(t *store.Tx) error { return t.DeleteSecurityGroup("p", "web") },
			func(t *store.Tx) (any, error) { return t.SecurityGroup("p", "web") },
			func(t *store.Tx) (any, error) { return t.SecurityGroups("p") },
			func(r int64) any { security.Revision = r; return security },
			func(int64) any { return []farm.SecurityGroup{security} }},
		{store.KindUser, "ann", func(t *store.Tx) error { return t.PutUser(user) },
			func(t *store.Tx) error { return t.DeleteUser("ann") },
			func(t *store.Tx) (any, error) { return t.UserOfSubject(user.Subjects[0]) },
			func(t *store.Tx) (any, error) { return t.Users() }, func(r int64) any { user.Revision = r; return user },
			func(int64) any { return []farm.User{user} }},
		{store.KindToken, "t1", func(t *store.Tx) error { return t.PutToken(token) },
			func(t *store.Tx) error { return t.DeleteToken("t1") },
			func(t *store.Tx) (any, error) { return t.Token("t1") },
			func(t *store.Tx) (any, error) { return t.Tokens("ann") },
			func(r int64) any { token.Revision = r; return token }, func(int64) any { return []farm.Token{token} }},
		{store.KindJoinToken, "j1", func(t *store.Tx) error { return t.PutJoinToken(join) },
			func(t *store.Tx) error { return t.DeleteJoinToken("j1") },
			func(t *store.Tx) (any, error) { return t.JoinToken("j1") },
			func(t *store.Tx) (any, error) { return t.JoinTokens() }, func(int64) any { return join },
			func(int64) any { return []farm.JoinToken{join} }},
		{store.KindStream, "s1", func(t *store.Tx) error { return t.PutStream(stream) },
			func(t *store.Tx) error { return t.DeleteStream("s1") },
			func(t *store.Tx) (any, error) { return t.Stream("s1") },
			func(t *store.Tx) (any, error) { return t.Streams("h1") }, func(int64) any { return stream },
			func(int64) any { return []store.Stream{stream} }},
		{store.KindMapping, mapping.String(), func(t *store.Tx) error { return t.PutMapping(mapping) },
			func(t *store.Tx) error { return t.DeleteMapping(mapping) },
			nil, func(t *store.Tx) (any, error) { return t.Mappings() }, nil,
			func(int64) any { return []farm.Mapping{mapping} }},
		{store.KindGrant, `"ann" operator "p" ""`, func(t *store.Tx) error { return t.PutGrant(grant) },
			func(t *store.Tx) error { return t.DeleteGrant(grant) },
			nil, func(t *store.Tx) (any, error) { return t.Grants("ann") }, nil,
			func(int64) any { return []farm.Grant{grant} }},
	} {
		s.object(o)
	}
}

func (s *suite) object(o object) {
	s.Helper()
	db, name := s.new(), string(o.kind)
	revision := s.update(db, o.put)
	s.view(db, func(tx *store.Tx) error {
		if o.get != nil {
			got, err := o.get(tx)
			same(s, name, o.want(revision), err, got)
		}
		got, err := o.list(tx)
		same(s, name+" in the list", o.all(revision), err, got)
		return nil
	})
	s.update(db, o.drop)
	s.fails(name+" deleted twice", s.in(db, o.drop), store.CodeAbsent)
	if o.get != nil {
		s.fails(name+" is gone", s.in(db, func(tx *store.Tx) error { _, err := o.get(tx); return err }),
			store.CodeAbsent)
	}
	changes, _, err := db.Changes(s.ctx, 0, 10)
	for i := range changes {
		changes[i].Host, changes[i].Project = "", ""
	}
	same(s, name+" in the feed", []store.Change{{Revision: 1, Kind: o.kind, ID: o.id},
		{Revision: 2, Kind: o.kind, ID: o.id, Deleted: true}}, err, changes)
}

func samePut(s *suite) {
	db, cell := s.new(), farm.Cell{Name: "b1", Reason: "x"}
	before := s.update(db, func(tx *store.Tx) error { return tx.PutCell(cell) })
	cell.Revision = before
	same(s, "revision", before, nil, s.update(db, func(tx *store.Tx) error { return tx.PutCell(cell) }))
	cell.Reason = "y"
	same(s, "revision after a change", before+1, nil,
		s.update(db, func(tx *store.Tx) error { return tx.PutCell(cell) }))
}

func users(s *suite) {
	db := s.new()
	ann := farm.User{Name: "ann", Subjects: []string{"CN=Ann", "CN=Ann 2"}}
	before := s.update(db, func(tx *store.Tx) error { return tx.PutUser(ann) })
	same(s, "the same again", before, nil, s.update(db, func(tx *store.Tx) error { return tx.PutUser(ann) }))
	s.fails("another's certificate",
		s.in(db, func(tx *store.Tx) error {
			return tx.PutUser(farm.User{Name: "ben",
				Subjects: []string{"CN=Ann 2"}})
		}), store.CodeTaken)
	ann.Subjects = ann.Subjects[:1]
	s.update(db, func(tx *store.Tx) error {
		if err := tx.PutUser(ann); err != nil {
			return err
		}
		if err := tx.PutUser(farm.User{Name: "ben", Subjects: []string{"CN=Ann 2"}}); err != nil {
			return err
		}
		for _, user := range []string{"ann", "ben"} {
			if err := tx.PutToken(farm.Token{ID: "t-" + user, User: user}); err != nil {
				return err
			}
			if err := tx.PutGrant(farm.Grant{User: user, Role: farm.RoleReader}); err != nil {
				return err
			}
		}
		return nil
	})
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.UserOfSubject("CN=Ann 2")
		same(s, "whose certificate", "ben", err, got.Name)
		return nil
	})
	s.update(db, func(tx *store.Tx) error { return tx.DeleteUser("ann") })
	s.view(db, func(tx *store.Tx) error {
		_, err := tx.UserOfSubject("CN=Ann")
		s.fails("certificate of a user who is gone", err, store.CodeAbsent)
		tokens, err := tx.Tokens("")
		same(s, "tokens", 1, err, len(tokens))
		grants, err := tx.Grants("")
		same(s, "roles", []farm.Grant{{User: "ben", Role: farm.RoleReader}}, err, grants)
		return nil
	})
}

func streams(s *suite) {
	db := s.new()
	s.update(db, func(tx *store.Tx) error { return tx.PutStream(store.Stream{ID: "s1", Host: "h1"}) })
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.Streams("h2")
		same(s, "of another host", nil, err, got)
		got, err = tx.Streams("")
		same(s, "of all", 1, err, len(got))
		return nil
	})
	changes, _, err := db.Changes(s.ctx, 0, 10)
	same(s, "the host's list changes", []store.Change{{Revision: 1, Kind: store.KindStream, ID: "s1", Host: "h1"}},
		err, changes)
}

func orphans(s *suite) {
	db := s.new()
	here := farm.Orphan{Host: "h1", VM: "v1", Name: "p/web", State: farm.VMRunning}
	there := farm.Orphan{Host: "h2", VM: "v1", State: farm.VMStopped}
	s.update(db, func(tx *store.Tx) error { return errors.Join(tx.PutOrphan(here), tx.PutOrphan(there)) })
	here.Evicted = true
	s.update(db, func(tx *store.Tx) error { return errors.Join(tx.PutOrphan(here), tx.PutOrphan(there)) })
	changes, _, err := db.Changes(s.ctx, 1, 10)
	same(s, "the host's list changes", []store.Change{{Revision: 2, Kind: store.KindOrphan, ID: "h1/v1", Host: "h1"}},
		err, changes)
	s.update(db, func(tx *store.Tx) error { return tx.DeleteOrphan("h2", "v1") })
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.Orphans("")
		same(s, "of all", []farm.Orphan{here}, err, got)
		got, err = tx.Orphans("h2")
		same(s, "of the other host", nil, err, got)
		return nil
	})
}

func settings(s *suite) {
	db := s.new()
	s.update(db, func(tx *store.Tx) error { return tx.PutSetting("ca", []byte(`{"a":1}`)) })
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.Setting("ca")
		same(s, "setting", `{"a":1}`, err, string(got))
		_, err = tx.Setting("none")
		s.fails("none", err, store.CodeAbsent)
		return nil
	})
	if err := s.in(db, func(tx *store.Tx) error { return tx.PutSetting("ca", []byte("no JSON")) }); err == nil {
		s.Error("a text that is no JSON was kept")
	}
}

func audit(s *suite) {
	db := s.new()
	entry := func(n int) farm.Entry {
		return farm.Entry{Time: noon.Add(time.Duration(n) * time.Hour), Who: []string{"ann", "ben"}[n%2],
			Means: "token", Source: "t1", Action: "vm.create", Target: "p/a", Project: []string{"p", "q", ""}[n%3],
			Outcome: "denied", Reason: "quota"}
	}
	var all []farm.Entry // newest first
	for n := range 12 {
		e := entry(n)
		e.Revision = s.update(db, func(tx *store.Tx) error { return tx.Audit(e) })
		e.ID = int64(n + 1)
		all = append([]farm.Entry{e}, all...)
	}
	choose := func(yes func(farm.Entry) bool) (some []farm.Entry) {
		for _, e := range all {
			if yes(e) {
				some = append(some, e)
			}
		}
		return some
	}
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.Entries("", "", 0, 100)
		same(s, "all", all, err, got)
		got, err = tx.Entries("p", "", 0, 100)
		same(s, "of a project", choose(func(e farm.Entry) bool { return e.Project == "p" }), err, got)
		got, err = tx.Entries("q", "ben", 0, 100)
		same(s, "of a project and a user",
			choose(func(e farm.Entry) bool { return e.Project == "q" && e.Who == "ben" }), err, got)
		got, err = tx.Entries("", "", 9, 3)
		same(s, "a page", choose(func(e farm.Entry) bool { return e.ID < 9 && e.ID > 5 }), err, got)
		return nil
	})
	changes, _, err := db.Changes(s.ctx, 0, 10)
	same(s, "the feed is silent", nil, err, changes)
	s.update(db, func(tx *store.Tx) error {
		again, err := tx.Prune(time.Time{}, noon.Add(100*time.Hour))
		if again {
			s.Error("there is more to prune")
		}
		return err
	})
	s.update(db, func(tx *store.Tx) error { return tx.Audit(entry(12)) })
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.Entries("", "", 0, 100)
		if err != nil || len(got) != 2 || got[0].ID != 13 || got[1].ID != 12 {
			s.Errorf("after pruning: %v, %v", got, err)
		}
		return nil
	})
}

func answers(s *suite) {
	db := s.new()
	put := func(key string, at time.Time) error {
		return s.in(db, func(tx *store.Tx) error { return tx.PutAnswer("ann", key, []byte{0, 1}, []byte{2, 255}, at) })
	}
	if err := put("k", noon); err != nil {
		s.Fatal(err)
	}
	s.fails("twice", put("k", noon), store.CodeTaken)
	s.view(db, func(tx *store.Tx) error {
		digest, answer, err := tx.Answer("ann", "k")
		same(s, "digest", []byte{0, 1}, err, digest)
		same(s, "answer", []byte{2, 255}, err, answer)
		_, _, err = tx.Answer("ben", "k")
		s.fails("another's key", err, store.CodeAbsent)
		return nil
	})
	if err := put("new", noon.Add(time.Hour)); err != nil {
		s.Fatal(err)
	}
	s.update(db, func(tx *store.Tx) error {
		again, err := tx.Prune(noon.Add(time.Minute), time.Time{})
		if again {
			s.Error("there is more to prune")
		}
		return err
	})
	s.view(db, func(tx *store.Tx) error {
		_, _, err := tx.Answer("ann", "k")
		s.fails("pruned", err, store.CodeAbsent)
		_, _, err = tx.Answer("ann", "new")
		return err
	})
}

// byteOrder: what a page says comes next must not depend on the language of a database.
func byteOrder(s *suite) {
	db, names := s.new(), []string{"A", "B", "_", "a", "a-b", "aB", "ab", "b", "é", "日"}
	s.update(db, func(tx *store.Tx) error {
		for i := range names {
			name := names[(i*7)%len(names)]
			if err := tx.PutCell(farm.Cell{Name: name}); err != nil {
				return err
			}
			if err := tx.InsertVM(farm.VM{ID: name, Project: "p", Name: name}); err != nil {
				return err
			}
		}
		return nil
	})
	s.view(db, func(tx *store.Tx) error {
		cells, err := tx.Cells()
		var got []string
		for _, c := range cells {
			got = append(got, c.Name)
		}
		same(s, "cells", names, err, got)
		vms, err := tx.VMs(store.VMFilter{After: "p/a"})
		got = nil
		for _, v := range vms {
			got = append(got, v.Name)
		}
		same(s, "VMs after a", names[4:], err, got)
		return nil
	})
}

// badText: what one engine cannot keep the other must not take.
func badText(s *suite) {
	db := s.new()
	for _, text := range []string{"\x00", "a\xff"} {
		s.fails("insert", s.in(db, func(tx *store.Tx) error { return tx.InsertVM(farm.VM{ID: "i", Name: text}) }),
			store.CodeBadText)
		s.fails("look up", s.in(db, func(tx *store.Tx) error { _, err := tx.VM(text); return err }), store.CodeBadText)
	}
	v := aVM(1)
	v.Waiting = "日本 'quoted' \"twice\" \\ $1 %s\n"
	s.update(db, func(tx *store.Tx) error { return tx.InsertVM(v) })
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.VM(v.ID)
		same(s, "text", v.Waiting, err, got.Waiting)
		return nil
	})
}
