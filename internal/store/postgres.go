package store

import (
	"context"
	"errors"
)

func (s *Store) openPostgres(ctx context.Context, url string) error { return errors.New("not yet") }
