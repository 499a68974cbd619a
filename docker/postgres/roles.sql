-- Who may do what: dsopt_writer owns the database (workers, 'dsopt study create'), dsopt_reader only reads it (the
-- dashboard). The image of PostgreSQL runs this once, when it makes the database.
\set ON_ERROR_STOP on
\set writer_password `cat /run/secrets/writer_password`
\set reader_password `cat /run/secrets/reader_password`
SELECT :'writer_password' = '' OR :'reader_password' = '' AS lacks_passwords \gset
\if :lacks_passwords
    \warn 'Put the two passwords into /run/secrets/writer_password and /run/secrets/reader_password. Nothing was made.'
    DO $$ BEGIN RAISE EXCEPTION 'there are no passwords'; END $$;
\endif
CREATE ROLE dsopt_writer LOGIN PASSWORD :'writer_password';
CREATE ROLE dsopt_reader LOGIN PASSWORD :'reader_password';
CREATE DATABASE dsopt OWNER dsopt_writer;
REVOKE ALL ON DATABASE dsopt FROM PUBLIC;
GRANT CONNECT ON DATABASE dsopt TO dsopt_reader;
\connect dsopt
GRANT USAGE ON SCHEMA public TO dsopt_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO dsopt_reader;
ALTER DEFAULT PRIVILEGES FOR ROLE dsopt_writer IN SCHEMA public GRANT SELECT ON TABLES TO dsopt_reader;
