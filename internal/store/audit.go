package store

import (
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// auditRows are the audit log, and answers to requests by their idempotency keys.
type auditRows struct{ *sqlTx }

// NoProject chooses entries that are of no project; no project has such a name.
const NoProject = "/"

// Audit adds an entry; its ID is the next one, its Revision this one. The feed does not tell of it.
func (t auditRows) Audit(e farm.Entry) error {
	e.Revision = t.revision
	body, err := encode(e)
	if err != nil {
		return err
	}
	_, err = t.exec("INSERT INTO entries (id, at, project, who, body) SELECT COALESCE(MAX(id), 0) + 1, CAST($1 AS "+
		"BIGINT), $2, $3, $4 FROM entries", stamp(e.Time), e.Project, e.Who, body)
	return err
}

// Entries are the audit log, the newest first: of a project, of somebody, "": of all; older than the one with the ID
// before, when that is not 0. Project NoProject chooses those that are of no project.
func (t auditRows) Entries(project, who string, before int64, limit int) (entries []farm.Entry, err error) {
	var conditions []string
	var args []any
	of := project
	if project == NoProject {
		of = ""
	}
	for _, c := range []struct {
		text  string
		value any
		want  bool
	}{{"project = $%d", of, project != ""}, {"who = $%d", who, who != ""}, {"id < $%d", before, before != 0}} {
		if c.want {
			args = append(args, c.value)
			conditions = append(conditions, fmt.Sprintf(c.text, len(args)))
		}
	}
	args = append(args, limit)
	err = t.each(func(r scanner) error {
		var e farm.Entry
		var id int64
		var body string
		if err := r.Scan(&id, &body); err != nil {
			return err
		}
		err := decode(body, &e)
		e.ID = id
		entries = append(entries, e)
		return err
	}, fmt.Sprintf("SELECT id, body FROM entries%s ORDER BY id DESC LIMIT $%d", whereAll(conditions), len(args)),
		args...)
	return entries, err
}

// Answer is the kept answer to a create with this idempotency key; NotFound: there is none. The digest tells another
// request under the same key.
func (t auditRows) Answer(who, key string) (digest, answer []byte, err error) {
	var d, a string
	if err := t.row("SELECT digest, answer FROM answers WHERE who = $1 AND key = $2", who, key).Scan(&d,
		&a); err != nil {
		return nil, nil, found(err, "answer to the key", key)
	}
	digest, err = base64.StdEncoding.DecodeString(d)
	answer, failed := base64.StdEncoding.DecodeString(a)
	return digest, answer, errors.Join(err, failed)
}

// PutAnswer keeps an answer. CodeTaken: there is one.
func (t auditRows) PutAnswer(who, key string, digest, answer []byte, at time.Time) error {
	n, err := t.exec("INSERT INTO answers (who, key, at, digest, answer) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO "+
		"NOTHING", who, key, stamp(at), base64.StdEncoding.EncodeToString(digest),
		base64.StdEncoding.EncodeToString(answer))
	if err == nil && n == 0 {
		return taken("the idempotency key "+key+" was used", "take a new key for each request")
	}
	return err
}

// dropAnswers drops more than there are too many, so that it need not be done with each new one.
const dropAnswers = "DELETE FROM answers WHERE who = $1 AND key IN (SELECT key FROM answers WHERE who = $1 " +
	"ORDER BY at LIMIT $2)"

// DropAnswers drops the oldest answers of a caller that has more than some, and a twentieth of them beside.
func (t auditRows) DropAnswers(who string, most int) error {
	var n int
	if err := t.row("SELECT COUNT(*) FROM answers WHERE who = $1", who).Scan(&n); err != nil || n <= most {
		return err
	}
	_, err := t.exec(dropAnswers, who, n-most+most/20)
	return err
}

// pruneAtOnce is how many answers and entries one transaction drops: all writers wait for it.
const pruneAtOnce = 2000

const (
	pruneAnswers = "DELETE FROM answers WHERE (who, key) IN (SELECT who, key FROM answers WHERE at < $1 ORDER BY at " +
		"LIMIT $2)"
	pruneEntries = "DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE at < $1 AND id < (SELECT MAX(id) " +
		"FROM entries) ORDER BY at LIMIT $2)"
)

// Prune drops answers and audit entries that are older, some of them at a time, the oldest first; again: there may be
// more. The newest entry stays, for its ID must not be used again.
func (t auditRows) Prune(answers, entries time.Time) (again bool, err error) {
	n, err := t.exec(pruneAnswers, stamp(answers), pruneAtOnce)
	if err != nil {
		return false, err
	}
	m, err := t.exec(pruneEntries, stamp(entries), pruneAtOnce)
	return max(n, m) == pruneAtOnce, err
}
