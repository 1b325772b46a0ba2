package farmlab

import (
	"context"

	"github.com/grange-project/grange/internal/store/storetest/postgres"
)

// database is the name of the farm's database.
const database = "farm"

// startDatabase starts a PostgreSQL of the farm's own.
func (f *Farm) startDatabase(ctx context.Context) error {
	f.say("starting PostgreSQL")
	var err error
	if f.postgres, err = postgres.Start(ctx); err != nil {
		return err
	}
	return f.postgres.Create(ctx, database, "")
}

// KillDatabase kills PostgreSQL as a crash would.
func (f *Farm) KillDatabase() error { return f.postgres.Kill() }

// StartDatabase starts PostgreSQL again after KillDatabase.
func (f *Farm) StartDatabase(ctx context.Context) error { return f.postgres.Restart(ctx) }
