package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// filled is a farm with something in each table.
func (s *suite) filled() (url string, db *store.Store) {
	s.Helper()
	url = s.fresh(s.T)
	db = s.open(url, store.Options{})
	s.update(db, func(tx *store.Tx) error { return tx.PutUser(farm.User{Name: "ann", Subjects: []string{"CN=Ann"}}) })
	s.update(db, func(tx *store.Tx) error {
		for n := range 20 {
			if err := tx.InsertVM(aVM(n)); err != nil {
				return err
			}
		}
		if err := tx.InsertHost(aHost(1)); err != nil {
			return err
		}
		if err := tx.PutAnswer("ann", "k", []byte{1}, []byte{2}, noon); err != nil {
			return err
		}
		return errors.Join(fillIncident(tx), tx.Audit(farm.Entry{Time: noon, Who: "ann"}))
	})
	if _, _, err := db.Lead(s.ctx, "a", ttl); err != nil {
		s.Fatal(err)
	}
	return url, db
}

// everything is all that a farm holds, as text.
func (s *suite) everything(db *store.Store) (text string) {
	s.Helper()
	s.view(db, func(tx *store.Tx) error {
		vms, err := tx.VMs(store.VMFilter{})
		if err != nil {
			return err
		}
		hosts, err := tx.Hosts("")
		if err != nil {
			return err
		}
		user, err := tx.UserOfSubject("CN=Ann")
		if err != nil {
			return err
		}
		digest, answer, err := tx.Answer("ann", "k")
		if err != nil {
			return err
		}
		entries, err := tx.Entries("", "", 0, 100)
		if err != nil {
			return err
		}
		incidents, err := tx.Incidents(store.IncidentFilter{All: []store.IncidentWord{{Kind: store.InCell, Word: "c"}},
			Limit: 10})
		if err != nil {
			return err
		}
		said, err := tx.IncidentEntries(1)
		if err != nil {
			return err
		}
		all, err := json.MarshalIndent([]any{vms, hosts, user, digest, answer, entries, incidents, said}, "", " ")
		text = string(all)
		return err
	})
	return text
}

// copied: there and back through a file of the portable format, every row and the revision.
func copied(s *suite) {
	url, db := s.filled()
	file := filepath.Join(s.TempDir(), "copy.db")
	there, err := store.Copy(s.ctx, url, file)
	if err != nil {
		s.Fatal(err)
	}
	if there.Revision != 2 || there.Rows < 20 {
		s.Errorf("copied %+v", there)
	}
	back := s.fresh(s.T)
	if _, err := store.Copy(s.ctx, file, back); err != nil {
		s.Fatal(err)
	}
	want, _, err := db.Changes(s.ctx, 0, 100)
	if err != nil {
		s.Fatal(err)
	}
	for _, url := range []string{file, back} {
		other := s.open(url, store.Options{})
		same(s, "all rows", s.everything(db), nil, s.everything(other))
		changes, upTo, err := other.Changes(s.ctx, 0, 100)
		same(s, "the feed", want, err, changes)
		same(s, "the revision", 2, err, upTo)
		same(s, "the next revision", 3, nil, s.update(other, put("new", 1)))
		s.fails("a second copy", second(store.Copy(s.ctx, file, url)), store.CodeNotEmpty)
	}
}

func second[T any](_ T, err error) error { return err }

func copyNotEmpty(s *suite) {
	from, _ := s.filled()
	to := s.fresh(s.T)
	db := s.open(to, store.Options{})
	s.update(db, put("mine", 1))
	s.fails("copy", second(store.Copy(s.ctx, from, to)), store.CodeNotEmpty)
	s.view(db, func(tx *store.Tx) error {
		cells, err := tx.Cells()
		same(s, "what was there", 1, err, len(cells))
		return nil
	})
	s.fails("from nothing", second(store.Copy(s.ctx, filepath.Join(s.TempDir(), "none.db"), s.fresh(s.T))),
		store.CodeNoStore)
	if _, err := store.Copy(s.ctx, s.fresh(s.T), filepath.Join(s.TempDir(), "new.db")); err == nil {
		s.Error("an empty database was copied")
	}
}

func backup(s *suite) {
	url, db := s.filled()
	dir := s.TempDir()
	file := filepath.Join(dir, "backup.db")
	if _, err := store.Backup(s.ctx, url, file); err != nil {
		s.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	same(s, "files", 1, err, len(files))
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		s.Errorf("the file of a backup: %v, %v", info.Mode(), err)
	}
	s.fails("over another", second(store.Backup(s.ctx, url, file)), store.CodeNotEmpty)
	s.update(db, put("after the backup", 1))

	restored := s.fresh(s.T)
	if _, err := store.Restore(s.ctx, file, restored); err != nil {
		s.Fatal(err)
	}
	s.fails("twice", second(store.Restore(s.ctx, file, restored)), store.CodeNotEmpty)
	again := s.fresh(s.T)
	if _, err := store.Restore(s.ctx, file, again); err != nil {
		s.Fatal(err)
	}
	books := map[string]bool{}
	for _, one := range []*store.Store{db, s.open(again, store.Options{}), s.open(restored, store.Options{})} {
		s.view(one, func(tx *store.Tx) error {
			name, err := tx.Books()
			books[name] = true
			return err
		})
	}
	same(s, "names of books", 3, nil, len(books))
	other := s.open(restored, store.Options{})
	s.view(other, func(tx *store.Tx) error {
		vms, err := tx.VMs(store.VMFilter{})
		same(s, "VMs", 20, err, len(vms))
		_, err = tx.Cell("after the backup")
		s.fails("later", err, store.CodeAbsent)
		return nil
	})
	// Whoever knows a revision of before must list anew, whether the backup has it or not.
	for _, known := range []int64{0, 2, 3} {
		_, _, err := other.Changes(s.ctx, known, 100)
		s.fails(fmt.Sprint("changes after ", known), err, farm.CodeFeedGone)
	}
	if _, ok, err := other.Lead(s.ctx, "b", ttl); !ok || err != nil {
		s.Errorf("the lease of the farm that was is still held: %v", err)
	}
}

func openAgain(s *suite) {
	url, db := s.filled()
	want := s.everything(db)
	same(s, "opened again", want, nil, s.everything(s.open(url, store.Options{})))
}
