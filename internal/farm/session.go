package farm

import "time"

// Session is a sign-in of a browser, or of a command line. It stands for its user until it ends.
type Session struct {
	ID      string // public; begins the secret's text
	User    string
	Hash    []byte // SHA-256 of the secret, which is random and long
	Client  string // what signed in, in its own words: for people
	Address string // where it signed in from
	Means   string // by which the user signed in: "token", "oidc"
	Source  string // the token's ID, or the issuer's name and the subject
	Role    Role   // at most, as a token has it
	// Projects are the only ones, as a token has them.
	Projects []string
	Grants   []Grant // what the issuer's claims gave at the sign-in, beside the user's own
	Created  time.Time
	Used     time.Time // last, give or take some minutes
	Ends     time.Time // unless it is used before
	Limit    time.Time // when it ends however much it is used
}
