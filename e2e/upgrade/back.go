package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	_ "modernc.org/sqlite" // to make tables of a release that there is not yet

	"github.com/grange-project/grange/e2e/farm/farmlab"
	"github.com/grange-project/grange/internal/store"
)

// refuseLater starts the old release on tables of a later one: on those that this release has made, or, where it
// changes nothing, on a copy with a step more. It has to end and to say how to go on.
func (u *upgrade) refuseLater(ctx context.Context) error {
	s := u.farm.Servers[0]
	if err := s.Stop(); err != nil {
		return err
	}
	s.Binary = grange(u.builds.old)
	if u.figures.SchemaTo > u.figures.SchemaFrom {
		return u.refused(ctx, s)
	}
	later := u.farm.Store + ".later"
	if err := oneStepMore(ctx, u.backup, later, u.figures.SchemaTo+1); err != nil {
		return err
	}
	if _, err := u.check(ctx, u.builds.old, "--store", later); err == nil ||
		!strings.Contains(err.Error(), string(store.CodeLater)) {
		return fmt.Errorf("grange server check of the old release says of a later one's tables: %v", err)
	}
	right := u.farm.Store + ".right"
	if err := errors.Join(os.Rename(u.farm.Store, right), os.Rename(later, u.farm.Store)); err != nil {
		return err
	}
	if err := u.refused(ctx, s); err != nil {
		return err
	}
	if err := os.Rename(right, u.farm.Store); err != nil {
		return err
	}
	fmt.Printf("         both releases have %d steps of tables: the old server starts on what the new one left\n",
		u.figures.SchemaTo)
	since := time.Now()
	if err := s.Start(ctx); err != nil {
		return err
	}
	if err := u.heard(ctx, since); err != nil {
		return err
	}
	return u.look(ctx)
}

// refused starts a server that has to end by itself.
func (u *upgrade) refused(ctx context.Context, s *farmlab.Server) error {
	err := s.Start(ctx)
	if err == nil {
		return errors.New("the old server runs on tables of a later release")
	}
	for _, text := range []string{string(store.CodeLater), "restore a backup from before the upgrade"} {
		if !strings.Contains(err.Error(), text) {
			return fmt.Errorf("the old server does not say %q: %w", text, err)
		}
	}
	u.figures.Refused++
	return nil
}

// oneStepMore copies a database, as if a later release had migrated it.
func oneStepMore(ctx context.Context, from, to string, step int64) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to, text, 0o600); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", to)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "INSERT INTO migrations (number) VALUES ($1)", step)
	return errors.Join(err, db.Close())
}

// serverBack is the way back of a site: the old server, on the backup from before. What was done since is not in it.
func (u *upgrade) serverBack(ctx context.Context) error {
	s := u.farm.Servers[0]
	if err := s.Stop(); err != nil {
		return err
	}
	if err := os.Rename(u.farm.Store, u.farm.Store+".upgraded"); err != nil {
		return err
	}
	if _, err := u.server(ctx, u.builds.old, "restore", u.backup); err != nil {
		return err
	}
	if err := u.restartServer(ctx, u.builds.old); err != nil {
		return err
	}
	return u.look(ctx)
}

// agentBack takes a host back to the old release, with a VM of each release on it.
func (u *upgrade) agentBack(ctx context.Context) error {
	if err := u.create(ctx, "late", last); err != nil {
		return err
	}
	if err := u.keep(ctx, "late"); err != nil {
		return err
	}
	if err := u.restartAgent(ctx, last, u.builds.old); err != nil {
		return err
	}
	// Room for one more there.
	if _, err := u.farm.Run(ctx, "vm", "delete", "people/late", "--wait"); err != nil {
		return err
	}
	u.kept = u.kept[:len(u.kept)-1]
	return nil
}

// clear deletes all VMs, and looks for what is left.
func (u *upgrade) clear(ctx context.Context) error {
	if err := u.look(ctx); err != nil {
		return err
	}
	if _, err := u.farm.Run(ctx, "vm", "delete", "people/*", "--wait"); err != nil {
		return err
	}
	left := u.farm.Leaks(ctx)
	vms, err := u.list(ctx)
	if err != nil {
		return err
	}
	for _, vm := range vms {
		left = append(left, "server: VM "+vm.Name)
	}
	if u.figures.Left = len(left); len(left) > 0 {
		return fmt.Errorf("left behind: %s", strings.Join(left, "; "))
	}
	return nil
}
