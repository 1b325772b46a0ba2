package store

import "github.com/grange-project/grange/internal/farm"

func scores() noun[farm.Score] {
	return noun[farm.Score]{kind: KindScore, what: "score", name: func(s farm.Score) string { return s.Name }}
}

// Scores are all.
func (t farmRows) Scores() ([]farm.Score, error) { return scores().list(t.sqlTx, "") }

// PutScore writes a score, new or not.
func (t farmRows) PutScore(s farm.Score) error { return scores().put(t.sqlTx, s) }

// DeleteScore takes a score away.
func (t farmRows) DeleteScore(name string) error { return scores().drop(t.sqlTx, name) }
