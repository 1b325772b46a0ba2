-- The key of the fleet's certificate authority, among the settings, is sealed by a key that is not in here: the server does that at its start. Releases
-- before cannot read it, so that they refuse these tables.
SELECT 1;
