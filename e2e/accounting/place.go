package main

import (
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// place enters a VM at the server, as on this host: the server charges only VMs that it placed. It writes past the
// server, as a second one on its database does.
func (s *site) place(w fleet.WantedVM) error {
	return s.write(func(t *store.Tx) error {
		h, err := t.HostNamed(hostName)
		if err != nil {
			return err
		}
		if _, err := t.VM(w.ID); err == nil { // written when nobody could say so
			return nil
		}
		return t.InsertVM(farm.VM{ID: w.ID, Name: w.Name, Project: w.Project, Owner: w.Owner, Image: w.Image,
			Shape:   farm.Shape{Name: w.Shape.Name, CPUs: w.Shape.CPUs, Memory: farm.Bytes(w.Shape.Memory)},
			Created: time.Now(), Wanted: farm.Wanted{Power: farm.PowerOn}, Cell: h.Cell, Host: h.ID})
	})
}

// leave deletes a VM there. Its record may come later.
func (s *site) leave(id string) error {
	return s.write(func(t *store.Tx) error {
		err := t.DeleteVM(id)
		if farm.IsCode(err, store.CodeAbsent) { // the server itself did
			return nil
		}
		return err
	})
}

// write writes to the server's database, and tries again.
func (s *site) write(do func(*store.Tx) error) error {
	return s.await(time.Minute, func() (err error) {
		if s.farm == nil {
			if s.farm, err = store.Open(s.ctx, s.path("farm.db")); err != nil {
				return err
			}
		}
		_, err = s.farm.Update(s.ctx, do)
		return err
	})
}
