package farm

// Codes of the server's door, and of those who stand before it.
const (
	CodeNoServer Code = "no-server"      // none is configured, or it does not answer
	CodeBadToken Code = "bad-token-file" // others can read the file of a token
	// a user has a certificate's subject without the authority, of which there are several
	CodeUnboundCert Code = "certificate-not-bound"
	// the caller has not said who it is, or in a way that the server does not accept
	CodeNotKnown     Code = "not-known"
	CodeTooManyTries Code = "too-many-tries"
	CodeConnections  Code = "too-many-connections"
	CodeNoRoute      Code = "no-route"
	CodeTooLarge     Code = "too-large"
	CodeChanged      Code = "changed" // another revision than If-Match says
	CodeOtherRequest Code = "other-request"
	CodeFeedGone     Code = "feed-gone"
	CodeNoUpgrade    Code = "not-a-stream"
)
